"""Kernels of optimised programs, what they cost, and what has no estimate."""

import math

import pytest

from meshwright.features.tune.layouts.compiler_judge import async_copies
from meshwright.features.tune.layouts.kernel_costs import (
    Example,
    KernelCosts,
    examples_of,
    same_program,
    unestimated_bytes,
)
from meshwright.features.tune.layouts.kernel_work import (
    Rates,
    expected_cycles,
    multiplications,
    read_arrays,
)
from meshwright.features.tune.layouts.kernels import read_kernels as read_with_rates
from meshwright.run.compilers.hlo import estimated_cycles, parse_hlo

RATES = Rates(bytes_per_cycle=500.0, macs_per_cycle=65536.0, elements_per_cycle=4096.0)

BODY = """HloModule step, is_scheduled=true

%fused.1 (p0: bf16[8,64], p1: bf16[64,256]) -> bf16[8,256] {
  %p0 = bf16[8,64]{1,0:T(8,128)(2,1)} parameter(0)
  %p1 = bf16[64,256]{ORDER:T(8,128)(2,1)} parameter(1)
  ROOT %c.1 = bf16[8,256]{1,0:T(8,128)(2,1)} convolution(%p0, %p1), dim_labels=bf_io->bf
}

%body (s: (s32[], bf16[8,256])) -> (s32[], bf16[8,256]) {
  %s = (s32[], bf16[8,256]{1,0}) parameter(0)
  %g = bf16[8,256]{1,0} get-tuple-element(%s), index=1
  %neg = bf16[8,256]{1,0} negate(%g), backend_config={CYCLES_10}
}

%condition (s.1: (s32[], bf16[8,256])) -> pred[] {
  %s.1 = (s32[], bf16[8,256]{1,0}) parameter(0)
}

ENTRY %main (a: bf16[8,64], b: bf16[64,256]) -> bf16[8,256] {
  %a = bf16[8,64]{1,0:T(8,128)(2,1)} parameter(0)
  %b = bf16[64,256]{ORDER:T(8,128)(2,1)} parameter(1)
  %copy-start = (bf16[8,64]{1,0:T(8,128)(2,1)S(1)}, bf16[8,64]{1,0}, u32[]) copy-start(%a)
  %copy-done = bf16[8,64]{1,0:T(8,128)(2,1)S(1)} copy-done(%copy-start)
  %f = bf16[8,256]{1,0:T(8,128)(2,1)} fusion(%copy-done, %b), calls=%fused.1, b={CYCLES_700}
  %w = (s32[], bf16[8,256]{1,0}) while(%f), condition=%condition, body=%body, TRIPS
  ROOT %x = bf16[8,256]{1,0} custom-call(%w), custom_call_target="Sort"
}
"""


def read_kernels(hlo):
    return read_with_rates(hlo, RATES)


def text(order="1,0", final=False):
    found = BODY.replace("ORDER", order)
    found = found.replace("TRIPS", 'backend_config={"known_trip_count":{"n":"5"}}')
    for cycles in (10, 700):
        estimate = f'{{"estimated_cycles":"{cycles}"}}' if final else "{}"
        found = found.replace(f"{{CYCLES_{cycles}}}", estimate)
    return found


def test_kernels_are_those_of_loops_and_the_entry_not_ops_inside_fusions():
    kernels = {k.name: k for k in read_kernels(text())}
    assert set(kernels) == {"copy-start", "f", "neg", "x"}
    assert kernels["neg"].runs == 5
    assert kernels["f"].kind == "product fb oi fb"
    assert kernels["copy-start"].is_async
    assert kernels["x"].is_async


def test_a_compiled_program_is_predicted_exactly_with_loops_multiplied():
    costs = KernelCosts()
    kernels = read_kernels(text())
    costs.learn(examples_of(kernels, text(final=True)))
    assert costs.predict(kernels) == estimated_cycles(text(final=True)) == 750


def test_names_do_not_matter_to_a_kernel_and_layouts_do():
    renamed = text().replace("%fused.1", "%other").replace("%f ", "%g7 ")
    assert same_program(read_kernels(renamed)) == same_program(read_kernels(text()))
    other = text(order="0,1")
    assert same_program(read_kernels(other)) != same_program(read_kernels(text()))


def test_the_logical_order_of_dims_does_not_matter_and_that_in_memory_does():
    swapped = text().replace("[64,256]{1,0:", "[256,64]{0,1:").replace("_io->", "_oi->")
    assert swapped != text()
    assert same_program(read_kernels(swapped)) == same_program(read_kernels(text()))
    other = swapped.replace("[256,64]{0,1:", "[256,64]{1,0:")
    assert same_program(read_kernels(other)) != same_program(read_kernels(text()))


@pytest.mark.parametrize(
    ("line", "same", "other"),
    [
        (
            "f32[64]{0} reduce(%p, %z), dimensions={0}, to_apply=%add",
            "f32[64]{0} reduce(%t, %z), dimensions={1}, to_apply=%sum",
            "f32[64]{0} reduce(%p, %z), dimensions={1}, to_apply=%add",
        ),
        (
            "f32[64,64]{1,0} transpose(%p), dimensions={1,0}",
            "f32[64,64]{0,1} transpose(%p), dimensions={0,1}",
            "f32[64,64]{0,1} transpose(%p), dimensions={1,0}",
        ),
    ],
)
def test_dims_that_an_op_names_count_as_places_in_memory(line, same, other):
    """%p has its rows in memory one after another, %t its columns."""

    def program(line):
        return (
            "ENTRY %main (p: f32[64,64], t: f32[64,64], z: f32[]) -> f32[64] {\n"
            "  %p = f32[64,64]{1,0} parameter(0)\n"
            "  %t = f32[64,64]{0,1} parameter(1)\n"
            "  %z = f32[] parameter(2)\n"
            f"  ROOT %r = {line}\n}}\n"
        )

    keys = [read_kernels(program(each))[0].key for each in (line, same, other)]
    assert keys[0] == keys[1] != keys[2]


def test_the_least_likely_cycles_are_below_the_guess_for_unknown_kernels_alone():
    costs = KernelCosts()
    kernels = read_kernels(text())
    costs.learn(examples_of(kernels, text(final=True)))
    assert costs.least(kernels) == costs.predict(kernels)
    others = read_kernels(text(order="0,1"))
    assert 50 < costs.least(others) < costs.predict(others)


def test_unestimated_instructions_are_copies_and_custom_calls():
    assert async_copies(text(final=True)) == 1
    assert unestimated_bytes(read_kernels(text())) == 2 * (8 * 128 + 8 * 256)


def test_padding_counts_the_two_minor_dims():
    (array,) = read_arrays("bf16[100,3,200]{1,2,0:T(8,128)(2,1)S(1)}")
    assert array.is_on_chip
    assert array.num_bytes == 2 * 100 * 200 * 128


def test_an_unknown_kernel_is_guessed_from_the_most_alike():
    costs = KernelCosts()
    (kernel,) = [k for k in read_kernels(text()) if k.name == "f"]
    costs.learn(
        [
            Example("one", kernel.kind, kernel.features, 500.0),
            Example("two", "gather", tuple(f + 3 for f in kernel.features), 9e6),
        ]
    )
    assert costs.cycles_of(kernel) == pytest.approx(500 * math.exp(0.1), rel=0.01)


def test_guesses_rise_when_compiled_kernels_cost_more_than_guessed():
    costs = KernelCosts()
    (first,) = [k for k in read_kernels(text()) if k.name == "f"]
    (other,) = [k for k in read_kernels(text(order="0,1")) if k.name == "f"]
    costs.learn([Example("near", first.kind, first.features, 500.0)])
    before = costs.cycles_of(first)
    costs.cycles_of(other)
    costs.learn([Example(other.key, other.kind, other.features, 5000.0)])
    costs.examples.pop()  # so that only the correction differs
    assert costs.cycles_of(first) > before


def single(line, types):
    """The kernel of a program with one instruction, given its operands' types."""
    made = "\n".join(f"  %p{i} = {t} parameter({i})" for i, t in enumerate(types))
    program = f"ENTRY %main (p: f32[8]) -> f32[8] {{\n{made}\n  ROOT %r = {line}\n}}\n"
    (kernel,) = read_kernels(program)
    return kernel


@pytest.mark.parametrize(
    ("before", "after", "num_bytes"),
    [
        ("{1,0:T(8,128)S(1)}", "{0,1:T(8,128)S(1)}", 4 * 128 * 256),
        ("{1,0:T(8,128)S(1)}", "{1,0:T(4,128)S(1)}", 0),  # the same minor dim
        ("{1,0:T(8,128)}", "{0,1:T(8,128)S(1)}", 0),  # from main memory
    ],
)
def test_the_constant_estimate_of_a_transposing_copy_on_chip_counts_as_none(
    before, after, num_bytes
):
    kernel = single(f"f32[256,64]{after} copy(%p0)", [f"f32[256,64]{before}"])
    assert kernel.unestimated_bytes == num_bytes  # 64 columns are padded to 128
    assert not kernel.is_async


@pytest.mark.parametrize(
    ("line", "types", "plain"),
    [
        # 4 x 16 rows, 32 deep, 8 columns
        (
            "f32[64,8]{1,0} convolution(%p0, %p1), dim_labels=bf_io->bf",
            ["f32[64,32]{1,0}", "f32[32,8]{1,0}"],
            64 * 32 * 8,
        ),
        # a batch of 4 products, which XLA writes as a dilated convolution
        (
            "f32[4,16,8]{2,1,0} convolution(%p0, %p1), "
            "window={size=4 stride=3 lhs_dilate=4}, dim_labels=0bf_0io->0bf",
            ["f32[4,16,32]{2,1,0}", "f32[4,32,8]{2,1,0}"],
            4 * 16 * 32 * 8,
        ),
        # a convolution of 3 x 3 on 10 x 10
        (
            "f32[2,10,10,8]{3,2,1,0} convolution(%p0, %p1), "
            "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
            ["f32[2,10,10,16]{3,2,1,0}", "f32[3,3,16,8]{3,2,1,0}"],
            2 * 10 * 10 * 8 * 9 * 16,
        ),
    ],
)
def test_multiplications_with_the_zeros_of_a_dilation_do_not_count(line, types, plain):
    program = parse_hlo(
        f"ENTRY %main (p: f32[8]) -> f32[8] {{\n  ROOT %r = {line}\n}}\n"
    )
    (product,) = program.computations["main"]
    inputs = [read_arrays(each)[0] for each in types]
    found, padded = multiplications(product, inputs)
    assert found == plain
    assert padded >= plain
    assert single(line, types).work["products"] == plain / RATES.macs_per_cycle


def test_a_copy_that_changes_the_minor_dim_is_expected_to_cost_more():
    plain = "f32[512,512]{1,0}"
    same = single("f32[512,512]{1,0} copy(%p0)", [plain])
    turned = single("f32[512,512]{0,1} copy(%p0)", [plain])
    assert same.features[0] < turned.features[0]
    assert same.features[1] == turned.features[1]  # the bytes are the same


def test_an_unknown_term_of_work_costs_nothing_and_every_kernel_100_cycles():
    assert expected_cycles({"products": 3.0}, {}) == 100.0
    assert (
        expected_cycles({"products": 300.0, "other": 9.0}, {"products": 2.0}) == 600.0
    )
