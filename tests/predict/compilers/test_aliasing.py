"""Aliasing, deferred initialization and alignment of buffers on TPUs."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from jax import lax

import meshwright as mw
from meshwright.machine import load_machine
from meshwright.predict.compilers.model.compilation import Stage, compile_program
from meshwright.predict.compilers.model.fusion import FusionKind
from meshwright.predict.compilers.model.kernels import multi_output_writes
from meshwright.predict.compilers.targets import compiler_of
from meshwright.predict.compilers.tpu.tpu_passes import TPU, tpu_compiler
from meshwright.predict.compilers.xla.producer_fusion import ProducerFusion
from meshwright.predict.compilers.xla.shared_passes import PLAIN
from meshwright.program.capture import capture
from tests.predict.compilers.compiled import fused, fused_memory, fusions_of
from tests.predict.compilers.test_instruction_fusion import OPS, build

X = jax.ShapeDtypeStruct((64, 128), jnp.float32)
X_BYTES = 64 * 128 * 4
APART = replace(
    TPU, fusion=replace(TPU.fusion, aliased_operands=PLAIN.fusion.aliased_operands)
)
EARLY = replace(
    TPU,
    fusion=replace(TPU.fusion, decide=ProducerFusion()),
    passes=tuple(p for p in TPU.passes if p.name != "deferred-initialization"),
)


def aligned(compiler):
    """The compiler with offsets that are multiples of 16 KiB."""
    buffers = replace(compiler.buffers, alignment_bytes=16384)
    return replace(compiler, buffers=buffers)


def blocks(fn, *args, compiler=TPU):
    """Bytes at the peak besides the arguments, in arrays of the size of X."""
    program = capture(fn, args).program
    memory = fused_memory(program, compiler=compiler)
    return (memory.peak_bytes - len(args) * X_BYTES) / X_BYTES


# -- aliased operands ------------------------------------------------------------------


def test_an_elementwise_result_takes_its_operands_buffer():
    def fn(x):
        return jnp.tanh(lax.sort(x))

    assert blocks(fn, X) == 1
    assert blocks(fn, X, compiler=APART) == blocks(fn, X, compiler=PLAIN) == 2


def test_an_operand_that_is_read_later_keeps_its_buffer():
    def fn(x):
        y = lax.sort(x)
        return jnp.tanh(y), lax.sort(y)

    assert blocks(fn, X) == 3


def test_an_argument_keeps_its_buffer():
    assert blocks(jnp.tanh, X) == 1


def test_an_op_that_moves_elements_takes_no_buffer():
    def fn(x):
        return jnp.tanh(lax.sort(x)[::-1])

    assert blocks(fn, X) == 2


def test_an_operand_written_with_others_keeps_its_buffer():
    def fn(x, y):
        x, y = lax.sort((x, y))
        return jnp.tanh(x), lax.sort(y)

    assert blocks(fn, X, X) == blocks(fn, X, X, compiler=APART) == 3


def test_an_operand_reduced_by_the_kernel_that_writes_it_keeps_its_buffer():
    def fn(x, w, bias, *, is_summed):
        logits = x @ w
        beside, bias = lax.sort(logits), lax.sort(bias)
        logits = logits + bias
        most = logits.max(1, keepdims=True) if is_summed else 0.0
        return lax.sort(jnp.tanh(logits - most)) + beside

    square = jax.ShapeDtypeStruct((128, 128), jnp.float32)
    bias = jax.ShapeDtypeStruct((128,), jnp.float32)
    found: list[bool] = []
    for is_summed in (False, True):
        take = partial(fn, is_summed=is_summed)
        program = capture(take, (square, square, bias)).program
        (product,) = [u for u in fusions_of(program) if u.kind is FusionKind.PRODUCT]
        found.append(product.writes[0] in fused_memory(program).overwritten)
    assert found == [True, False]


def test_the_epilogue_of_a_product_takes_the_addends_buffer():
    w = jax.ShapeDtypeStruct((64, 64), jnp.float32)

    def fn(w, x):
        return w @ x + lax.sort(x)

    program = capture(fn, (w, X)).program
    peaks = [fused_memory(program, compiler=c).peak_bytes for c in (TPU, APART)]
    assert peaks[1] - peaks[0] == X_BYTES


@given(OPS)
def test_aliasing_never_takes_more_memory(ops):
    program = build(ops)
    peaks = [max(fused_memory(program, compiler=r).curve) for r in (TPU, APART)]
    assert peaks[0] <= peaks[1]


def test_an_all_reduce_takes_its_operands_buffer():
    def fn(x, w):
        return lax.sort(x @ w)

    x = jax.ShapeDtypeStruct((512, 1024), jnp.float32)
    w = jax.ShapeDtypeStruct((1024, 512), jnp.float32)
    rules = [mw.shard({"x": 1, "w": 0}, axis="model")]
    lowered = mw.partition(fn, {"model": 8}, rules).decide(x, w).lowered
    fusions = fusions_of(lowered.program)
    assert FusionKind.COLLECTIVE in {fusion.kind for fusion in fusions}
    peaks = [fused_memory(lowered.program, compiler=r).peak_bytes for r in (TPU, APART)]
    inputs = 2 * 512 * 1024 * 4 / 8
    assert [(peak - inputs) / 2**20 for peak in peaks] == [2, 2]
    memory = fused_memory(lowered.program)
    assert memory.curve[2] == inputs + 2**20
    assert fused_memory(lowered.program, compiler=APART).curve[2] == inputs + 2 * 2**20


# -- deferred initialization ------------------------------------------------------------


def filled(x):
    """A cache with one slice of it written."""
    zeros = jnp.zeros((8, *x.shape))
    return lax.dynamic_update_slice(zeros, x.reshape(1, *x.shape), (0, 0, 0))


def kinds(fn, compiler=TPU):
    return [
        u.root.kind for u in fusions_of(capture(fn, (X, X)).program, compiler=compiler)
    ]


def test_a_buffer_is_initialized_just_before_its_first_reader():
    def fn(x, y):
        cache = filled(lax.sort(x))
        y = lax.sort(lax.sort(y))
        return lax.scan(lambda c, z: (c + z, None), y, cache)[0]

    late = ["sort", "sort", "sort", "dynamic_update_slice", "scan"]
    assert kinds(fn) == late
    early = ["sort", "broadcast_in_dim", "dynamic_update_slice", "sort", "sort", "scan"]
    assert kinds(fn, EARLY) == early


def test_a_buffer_that_nothing_reads_is_initialized_last():
    order = kinds(lambda x, y: (filled(x), lax.sort(y)))
    assert order == ["sort", "dynamic_update_slice"]


def test_an_update_of_a_stored_buffer_is_not_deferred():
    def fn(x, y):
        cache = lax.sort(jnp.zeros((8, 64, 128)) + x)
        return lax.dynamic_update_slice(cache, y[None], (0, 0, 0)), lax.sort(y)

    assert kinds(fn)[-2:] == ["dynamic_update_slice", "sort"]


def test_a_slice_is_written_before_another_value_takes_its_buffer():
    def fn(x, y):
        part = lax.sort(x)
        cache = filled(part)
        other = lax.dynamic_update_slice(part, y[:1], (0, 0))
        return cache, lax.sort(other)

    fusions = fusions_of(capture(fn, (X, X)).program)
    updates = [u for u in fusions if u.root.kind == "dynamic_update_slice"]
    assert [fusion.in_place is None for fusion in updates] == [True, False]


# -- alignment --------------------------------------------------------------------------


def test_offsets_and_address_tables_are_aligned():
    def fn(x):
        a, b = lax.sort((x[:1], x[1:2]))
        return lax.sort(a + b)

    program = capture(fn, (X,)).program
    plain = fused_memory(program, compiler=APART)
    memory = fused_memory(program, compiler=aligned(APART))
    assert plain.extra_bytes == 0
    assert memory.extra_bytes == 2 * 16384
    assert memory.curve == plain.curve
    assert plain.fragmentation_bytes == 0
    assert memory.fragmentation_bytes == 4 * (16384 - 512)
    stepped = fused_memory(program, compiler=aligned(TPU))
    together = multi_output_writes(fused(program).kernels)
    assert stepped.extra_bytes == (1 + len(together)) * 16384


@pytest.mark.parametrize(
    ("name", "step", "receives"),
    [
        ("tpu-v4", 16384, False),
        ("tpu-v5e", 16384, True),
        ("tpu-v5p", 16384, False),
        ("tpu-v6e", 16384, True),
        ("h100", 0, False),
        ("cpu", 0, False),
    ],
)
def test_alignment_and_received_values_depend_on_the_chip(name, step, receives):
    compiler = compiler_of(load_machine(name, 8))
    assert compiler.buffers.alignment_bytes == step
    assigned = [p.run for p in compiler.passes if p.stage is Stage.MEMORY]
    assert [run.allows_received for run in assigned] == ([receives] if step else [])


# -- results of collectives -------------------------------------------------------------


@pytest.mark.parametrize("receives", [False, True])
def test_scratch_memory_holds_results_of_collectives_if_the_chip_can(receives):
    def fn(x, w):
        return jnp.tanh(x @ w) @ w

    x = jax.ShapeDtypeStruct((512, 1024), jnp.float32)
    w = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
    rules = [mw.data_parallel("data", "x"), mw.shard({"w": 0}, axis="data")]
    lowered = mw.partition(fn, {"data": 8}, rules).decide(x, w).lowered
    found = compile_program(
        lowered.program, tpu_compiler(receives_on_chip=receives), (1, 1)
    )
    kept = found.layouts_on(2**30).on_chip
    gathered = {
        v for u in found.fusions if u.kind is FusionKind.COLLECTIVE for v in u.writes
    }
    assert gathered
    assert gathered <= kept if receives else gathered.isdisjoint(kept)
