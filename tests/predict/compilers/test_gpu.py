"""Passes of the GPU compiler; compiled figures are XLA's for one H100 (jax 0.12.0.1)."""

import jax
import jax.numpy as jnp
import pytest
from jax import ShapeDtypeStruct, lax

import meshwright as mw
from meshwright.predict.compilers.gpu.gpu_passes import GPU
from meshwright.predict.compilers.gpu.latency_hiding_scheduler import (
    hide_latency,
)
from meshwright.predict.compilers.gpu.layout_assignment import dim_orders
from meshwright.predict.compilers.model.compilation import compile_program
from meshwright.predict.compilers.model.fusion import Fusion, FusionKind
from meshwright.predict.compilers.xla.collective_combiner import combine_collectives
from meshwright.program.ir import Op, Value
from meshwright.program.ops import OpWork
from tests.predict.compilers.compiled import fusions_of
from tests.predict.memory.test_buffer_assignment import program_of


def f32(*shape):
    return ShapeDtypeStruct(shape, jnp.float32)


def memory_on_h100(fn, *args):
    """Predicted bytes on one device."""
    return mw.partition(fn, {"d": 1}, []).plan(*args).on("h100").peak_memory_bytes


def attention(q, k, v):
    def loss(q, k, v):
        return ((jax.nn.softmax(q @ k.T, axis=-1) @ v) ** 2).sum()

    return jax.grad(loss, (0, 1, 2))(q, k, v)


def test_scores_are_in_memory_before_and_after_their_softmax():
    compiled = 53_477_484
    found = memory_on_h100(attention, *[f32(2048, 64)] * 3)
    assert found == pytest.approx(compiled, rel=0.02)


def gradients(scores):
    """Gradients of weights of layers in a scan, whose attention is given its scores."""

    def step(weights, x):
        def layer(h, w):
            q = (h @ w).reshape(8, 512, 4, 32)
            weights = jax.nn.softmax(scores(q, q * 2), axis=-1)
            mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, q)
            return h + mixed.reshape(8, 512, 128), None

        return jax.grad(lambda weights: lax.scan(layer, x, weights)[0].sum())(weights)

    return step


def keys_first(q, k):
    return jnp.einsum("bkhd,bqhd->bhkq", k, q).swapaxes(2, 3)


def queries_first(q, k):
    return jnp.einsum("bqhd,bkhd->bhqk", q, k)


LAYERS = f32(12, 128, 128), f32(8, 512, 128)


def test_a_stack_that_two_loops_want_in_different_orders_is_copied():
    compiled = 1_288_706_956  # three stacks of 384 MiB, of which one is a copy
    found = memory_on_h100(gradients(keys_first), *LAYERS)
    assert found == pytest.approx(compiled, rel=0.02)


def test_a_stack_that_two_loops_want_in_one_order_is_not_copied():
    def copies(scores):
        program = program_of(gradients(scores), *LAYERS)
        ops = compile_program(program, GPU, (1, 1)).program.ops
        return sum(
            op.kind == "copy_p" and op.results[0].shape[-2:] == (512, 512) for op in ops
        )

    assert copies(queries_first) == 0
    assert copies(keys_first) > 0


def test_products_decide_on_the_order_of_dims():
    def scores(q, k):
        return jnp.exp(keys_first(q, k))

    program = program_of(scores, f32(8, 512, 4, 32), f32(8, 512, 4, 32))
    orders = dim_orders(program)
    assert orders[program.outputs[0]] == (0, 1, 3, 2)
    # Heads are a batch dim, so they come before the length.
    assert {orders[v][:2] for v in program.inputs} == {(0, 2)}


X, W = f32(64, 64), f32(64, 64)


def stored_kinds(fn, *args):
    return [fusion.root.kind for fusion in fusions_of(program_of(fn, *args), GPU)]


def test_what_a_product_and_others_need_is_stored_and_not_computed_again():
    def fn(x, w):
        y = x * x + 1
        return y @ w, y * 3

    assert stored_kinds(fn, X, W) == ["add", "dot_general", "mul"]


@pytest.mark.parametrize(("op", "stored"), [(jnp.exp, 2), (jnp.tanh, 3)])
def test_only_cheap_ops_are_computed_by_several_consumers(op, stored):
    def fn(x):
        y = op(x)
        return y + 1, (y * y).sum(0)

    assert len(stored_kinds(fn, X)) == stored


def test_a_product_computes_an_operand_that_nothing_else_needs():
    assert stored_kinds(lambda x, w: (x * 2) @ w, X, W) == ["dot_general"]


def layer_gradients(weights, x):
    """Gradients of layers with batch statistics, which synchronise devices."""

    def loss(weights):
        h = x
        for w in weights:
            h = h @ w
            h = jnp.maximum(h - h.mean(0), 0)
        return h.sum()

    return jax.grad(loss)(weights)


def gradients_of_weights(hides):
    """Whether each product, in the order of the fusions, is a gradient of weights."""
    weights = [f32(256, 256)] * 6
    step = mw.partition(layer_gradients, {"d": 8}, [mw.data_parallel("d", "x")])
    program = step.plan(weights, f32(8192, 256)).decided.lowered.program
    fusions = fusions_of(program, GPU)
    ordered = hide_latency(fusions, program) if hides else fusions
    assert set(ordered) == set(fusions)
    made = set()
    for fusion in ordered:
        assert all(
            v in made for v in fusion.reads if any(v in f.writes for f in fusions)
        )
        made.update(fusion.writes)
    products = [f for f in ordered if f.kind.value == "product"]
    return [f.writes[0].shape == (256, 256) for f in products]


def test_gradients_of_weights_hide_collectives_late_in_the_backward_pass():
    first, last = gradients_of_weights(hides=False), gradients_of_weights(hides=True)
    assert sum(first) == sum(last) == 6
    # XLA computes no gradient of weights before the fifth gradient of activations.
    assert last.index(True) > 6
    assert last[-1]


def test_a_loop_that_stacks_reduce_scatters_runs_its_first_iteration_before():
    from zoo import llm

    fn, args = llm.targets["gpt_125m"](layers=3, batch=8, sequence=64)
    tactics = [mw.data_parallel("data", "batch.**"), mw.fsdp("data")]
    plan = mw.partition(fn, {"data": 8}, tactics).plan(*args)
    program = compile_program(plan.decided.lowered.program, GPU, (1, 1)).program
    lengths = [op.params["length"] for op in program.ops if op.kind == "scan"]
    assert lengths == [3, 2]  # in XLA's program, as "known_trip_count"
    flops = sum(op.kind == "dot_general" for op in program.walk())
    unpeeled = sum(
        op.kind == "dot_general" for op in plan.decided.lowered.program.walk()
    )
    assert flops > unpeeled


def kernels_in_loop(stacked, weights):
    """Kinds and bytes of the kernels of a loop over stacked weights [L, 64, 64]."""

    def step(x):
        if stacked:
            return lax.scan(lambda h, w: (h @ w, h @ w), x, weights)
        return lax.scan(lambda h, _: (jnp.tanh(h), None), x, None, length=4)

    program = program_of(step, f32(64, 64))
    kernels = compile_program(program, GPU, (1, 1)).kernels.kernels
    (loop,) = [each for each in kernels if each.bodies]
    return [each for each in kernels if each is not loop], loop.bodies[0].kernels


def test_a_product_reads_and_writes_copies_of_slices():
    """As in XLA: slice, product, update; and zeros for the stack before the loop."""
    outside, inside = kernels_in_loop(True, jnp.ones((4, 64, 64)))
    slice_bytes = 4 * 64 * 64
    zeros = [
        each.num_bytes for each in outside if each.fusion.root.kind == "zeros_like"
    ]
    assert zeros == [4 * slice_bytes]
    copies = [e.num_bytes for e in inside if e.fusion.root.kind == "copy_p"]
    assert copies == [2 * slice_bytes] * 2
    outside, inside = kernels_in_loop(False, None)
    assert [each.fusion.root.kind for each in (*outside, *inside)] == ["tanh"]


def reduced(name, size, axes=("d",)):
    """A collective fusion of `size` float32 elements, with its operand and result."""
    before, after = Value((size,), "float32"), Value((size,), "float32")
    op = Op(name, (before,), (after,), {"axes": axes})
    return Fusion(op, FusionKind.COLLECTIVE, (before,), (after,), OpWork(0, 0))


def test_small_collectives_run_as_one_up_to_30_mib():
    small = [reduced("all_reduce", 2**20) for _ in range(9)]  # 36 MiB
    other = reduced("all_gather", 2**20)
    along_another_axis = reduced("all_reduce", 2**20, ("m",))
    found = combine_collectives([*small, other, along_another_axis])
    assert [fusion.is_joined for fusion in found].count(False) == 4
    assert {id(fusion.root) for fusion in found} == {
        id(fusion.root) for fusion in (*small, other, along_another_axis)
    }


def test_a_collective_is_launched_before_its_result_is_read():
    first, second = reduced("all_reduce", 8), reduced("all_reduce", 8)
    (read,) = first.writes
    op = Op("tanh", (read,), (Value((8,), "float32"),))
    reader = Fusion(op, FusionKind.LOOP, (read,), op.results, OpWork(8, 8))
    found = combine_collectives([first, reader, second])
    assert found == (first, reader, second)


def test_what_has_been_launched_holds_up_nothing():
    """A second reader of a launched result does not launch the collectives after it."""
    first, *others = [reduced("all_reduce", 8) for _ in range(3)]
    readers = [
        Fusion(op, FusionKind.LOOP, first.writes, op.results, OpWork(8, 8))
        for op in [
            Op("tanh", first.writes, (Value((8,), "float32"),)) for _ in range(2)
        ]
    ]
    order = combine_collectives([first, readers[0], others[0], readers[1], others[1]])
    assert [fusion.root for fusion in order] == [
        each.root for each in (first, *readers, *others)
    ]
    assert [fusion.is_joined for fusion in order] == [False] * 4 + [True]


def test_collectives_of_two_dtypes_do_not_combine():
    wide, narrow = reduced("all_reduce", 8), reduced("all_reduce", 8)
    half = Value((8,), "bfloat16")
    other = Fusion(
        Op("all_reduce", (half,), narrow.writes, {"axes": ("d",)}),
        FusionKind.COLLECTIVE, (half,), narrow.writes, OpWork(0, 0),
    )  # fmt: skip
    assert not any(each.is_joined for each in combine_collectives([wide, other]))


@pytest.mark.parametrize("layers", [0, 3])
def test_a_step_with_added_and_combined_kernels_has_a_report_and_a_trace(
    tmp_path, layers
):
    """Copies of slices, zeros and joined collectives are in the timeline only."""

    def step(weights, bias, x):
        def loss(weights, bias):
            h = jnp.tanh(x @ bias)
            if layers:
                h, _ = lax.scan(lambda h, w: (jnp.tanh(h @ w), None), h, weights)
            return (h**2).mean() + (weights**2).sum() + (x @ bias.T).mean()

        return jax.grad(loss, (0, 1))(weights, bias)

    args = f32(max(layers, 1), 64, 64), f32(64, 64), f32(64, 64)
    planned = mw.partition(step, {"d": 8}, [mw.data_parallel("d", "x")]).plan(*args)
    plan = planned.on("a100-80g")
    plan.report(tmp_path / "page.html")
    plan.trace(tmp_path / "trace.json")
    assert (tmp_path / "page.html").stat().st_size > 1000
    assert (tmp_path / "trace.json").stat().st_size > 100


def test_a_list_of_layers_does_not_keep_all_gradients_until_their_reduction():
    def loss(weights, x):
        layer = jax.checkpoint(lambda x, up, down: jnp.tanh(x @ up) @ down)
        for up, down in weights:
            x = x + layer(x, up.astype("bfloat16"), down.astype("bfloat16"))
        return (x.astype("float32") ** 2).mean()

    def step(weights, x):
        slopes = jax.grad(loss)(weights, x)
        return jax.tree.map(lambda w, slope: w - 1e-3 * slope, weights, slopes)

    compiled = 42_144_808_028  # 40 times 2 GiB of gradients, if all of them waited
    weights = [(f32(8192, 65_536), f32(65_536, 8192))] * 40
    tactics = [mw.data_parallel("data"), mw.zero(3, "data")]
    plan = mw.partition(step, {"data": 8}, tactics).plan(
        weights, ShapeDtypeStruct((65_536, 8192), jnp.bfloat16)
    )
    found = plan.on("h100", donate_state=True).peak_memory_bytes
    assert found == pytest.approx(compiled, rel=0.15)
