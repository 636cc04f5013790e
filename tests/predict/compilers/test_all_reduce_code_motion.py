"""All-reduce code motion and reassociation: fewer collectives, the same numbers."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import meshwright as mw
from meshwright.partitioner.lower.lowered import executions
from meshwright.predict.compilers.gpu.gpu_passes import GPU
from meshwright.predict.compilers.model.compilation import Origins, compile_program
from meshwright.predict.compilers.tpu.tpu_passes import TPU
from meshwright.predict.compilers.xla.all_reduce_reassociate import reassociate
from meshwright.predict.compilers.xla.while_loop_all_reduce_code_motion import (
    code_motion,
)
from meshwright.program.ops import COLLECTIVES
from meshwright.run.local.spmd import make_executable

STEPS = 6


def moved(program):
    """The program after code motion and reassociation, and the origins of its ops."""
    origins = Origins()
    return reassociate(code_motion(program, origins), origins), origins


W = jnp.linspace(-1, 1, 64).reshape(8, 8)
X = jnp.sin(jnp.arange(16.0 * STEPS * 8)).reshape(16, STEPS, 8)


def microbatched(w, x):
    """A step along gradients that the iterations of a loop add up."""

    def turn(total, x):
        return total + jax.grad(lambda w: jnp.tanh(x @ w).sum())(w), None

    total = lax.scan(turn, jnp.zeros_like(w), jnp.moveaxis(x, 1, 0))[0]
    return w - 0.1 * total


def accumulated(w, x):
    """Gradients in 16 bits, accumulated in 32 onto an initial value."""

    def turn(total, x):
        def loss(w):
            return jnp.tanh(x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)).sum()

        return total + jax.grad(loss)(w).astype(jnp.float32), None

    return lax.scan(turn, jnp.cos(w), jnp.moveaxis(x, 1, 0))[0]


def nested(w, x):
    """Accumulation in a loop within another loop."""

    def outer(c, i):
        return jnp.tanh(c) + accumulated(w, x * i), None

    return lax.scan(outer, w, jnp.arange(1.0, 3.0))[0]


def read_in_between(w, x):
    """An accumulator that each iteration reads as well."""

    def turn(total, x):
        total = total + jax.grad(lambda w: jnp.tanh(x @ w).sum())(w)
        return total, total.max()

    return lax.scan(turn, jnp.zeros_like(w), jnp.moveaxis(x, 1, 0))


def cut(fn):
    """The function with its images and weights sharded along one axis."""
    tactics = [mw.shard({"x": 0}, axis="data"), mw.shard({"w": 0}, axis="data")]
    return mw.partition(fn, {"data": 8}, tactics).plan(W, X).decided.lowered


def reductions(program):
    """Executions of each reduction."""
    sums = ("all_reduce", "reduce_scatter")
    return [times for op, times in executions(program) if op.kind in sums]


@pytest.mark.parametrize("fn", [microbatched, accumulated, nested])
def test_code_motion_keeps_the_numbers(fn):
    lowered = cut(fn)
    changed, origins = moved(lowered.program)
    assert max(reductions(lowered.program)) >= STEPS
    assert max(reductions(changed)) <= 2
    known = {*lowered.program.walk()}
    assert {op for op in changed.walk() if op.kind in COLLECTIVES} - known <= {*origins}
    assert {*origins.values()} <= known
    (got,) = make_executable(replace(lowered, program=changed))([W, X])
    # Sums in 16 bits are rounded elsewhere; a wrong number of addends differs far more.
    np.testing.assert_allclose(got, fn(W, X), rtol=2e-2, atol=6e-2)


def test_two_added_all_reduces_become_one():
    """An embedding that is looked up in 32 bits and multiplied with in 16."""

    def tied(w, x):
        def loss(w):
            rows = w[x[:, :, 0].astype(jnp.int32) % 8]
            rows, halved = rows.astype(jnp.bfloat16), w.astype(jnp.bfloat16)
            made = jnp.einsum(
                "btd,vd->btv", rows, halved, preferred_element_type=jnp.float32
            )
            return (made**2).sum()

        return w - 0.01 * jax.grad(loss)(w)

    tactics = [mw.shard({"x": 0}, axis="data")]
    lowered = mw.partition(tied, {"data": 8}, tactics).plan(W, X).decided.lowered
    changed, origins = moved(lowered.program)
    assert len(reductions(lowered.program)) == 2
    assert len(reductions(changed)) == 1
    assert {*origins.values()} <= {*lowered.program.walk()}
    (got,) = make_executable(replace(lowered, program=changed))([W, X])
    np.testing.assert_allclose(got, tied(W, X), rtol=2e-2, atol=2e-2)


def rounded(value):
    return value.astype(jnp.bfloat16).astype(jnp.float32)


def summed(w, x):
    """The gradient of a single image, with its own sum over devices."""
    return rounded(jax.grad(lambda w: jnp.tanh(x @ w).sum())(w))


def along(fn):
    """The function with its images alone sharded: its sums are all-reduces."""
    tactics = [mw.shard({"x": 0}, axis="data")]
    return mw.partition(fn, {"data": 8}, tactics).plan(W, X).decided.lowered


def test_three_added_all_reduces_become_one():
    def thrice(w, x):
        return summed(w, x[:, 0]) + summed(w, x[:, 1]) + summed(w, x[:, 2])

    lowered = along(thrice)
    assert reductions(lowered.program) == [1, 1, 1]
    changed, _ = moved(lowered.program)
    assert reductions(changed) == [1]
    (got,) = make_executable(replace(lowered, program=changed))([W, X])
    np.testing.assert_allclose(got, thrice(W, X), rtol=2e-2, atol=6e-2)


def test_two_all_reduces_that_a_loop_accumulates_become_one_per_iteration():
    """The compiler does not move a sum of all-reduces out of a loop."""

    def turns(w, x):
        def turn(total, x):
            return total + (summed(w, x) + summed(w, 2 * x)), None

        return lax.scan(turn, jnp.zeros_like(w), jnp.moveaxis(x, 1, 0))[0]

    lowered = along(turns)
    assert reductions(lowered.program) == [STEPS, STEPS]
    changed, origins = moved(lowered.program)
    assert reductions(changed) == [STEPS]
    assert {*origins.values()} <= {*lowered.program.walk()}


def test_an_all_reduce_with_another_reader_is_not_reassociated():
    def fn(w, x):
        first, second = summed(w, x[:, 0]), summed(w, x[:, 1])
        return first + second, first * 2

    assert reductions(moved(along(fn).program)[0]) == [1, 1]


def test_all_reduces_over_different_axes_are_not_reassociated():
    def fn(w, x, y):
        return summed(w, x) + summed(w, y)

    tactics = [mw.shard({"x": 0}, "data"), mw.shard({"y": 0}, "more")]
    step = mw.partition(fn, {"data": 4, "more": 2}, tactics)
    program = step.plan(W, X[:, 0], X[:, 1]).decided.lowered.program
    assert reductions(program) == [1, 1]
    assert reductions(moved(program)[0]) == [1, 1]


def test_all_reduces_converted_to_another_dtype_are_not_reassociated():
    """One all-reduce in 16 bits, converted, and one in 32."""

    def fn(w, x):
        narrow = jax.grad(lambda w: jnp.tanh(x[:, 1].astype(w.dtype) @ w).sum())
        half = narrow(w.astype(jnp.bfloat16)).astype(jnp.float32)
        return summed(w, x[:, 0]) + half

    program = along(fn).program
    assert reductions(program) == [1, 1]
    assert reductions(moved(program)[0]) == [1, 1]


def test_an_all_reduce_of_the_accumulator_itself_stays_in_the_loop():
    def fn(w, x):
        def turn(total, x):
            return total + summed(w + 0.01 * jnp.tanh(total), x), None

        return lax.scan(turn, jnp.zeros_like(w), jnp.moveaxis(x, 1, 0))[0]

    assert reductions(moved(along(fn).program)[0]) == [STEPS]


def test_an_all_reduce_of_maxima_stays_in_the_loop():
    def fn(w, x):
        def turn(total, x):
            return total + x.max(0), None

        return lax.scan(turn, jnp.zeros(8), jnp.moveaxis(x, 1, 0))[0]

    program = along(fn).program
    assert {
        op.params["monoid"] for op in program.walk() if op.kind == "all_reduce"
    } == {"max"}
    assert moved(program) == (program, {})


def test_an_accumulator_that_the_loop_reads_stays():
    lowered = cut(read_in_between)
    assert max(reductions(lowered.program)) >= STEPS
    assert moved(lowered.program) == (lowered.program, {})


def test_the_moved_accumulator_is_as_large_as_the_collectives_operand():
    program = cut(microbatched).program
    tpu, gpu = (compile_program(program, each, (8, 128)) for each in (TPU, GPU))
    assert max(reductions(tpu.program)) == 1
    assert max(reductions(gpu.program)) == STEPS
    (*_, loop) = (op for op in tpu.program.ops if op.kind == "scan")
    assert W.shape in {v.shape for v in loop.results}


def test_an_accumulator_that_starts_from_zeros_needs_no_addition():
    changed, _ = moved(cut(microbatched).program)
    kinds = [op.kind for op in changed.ops]
    behind = kinds[kinds.index("reduce_scatter") + 1 :]
    assert "add" not in behind
    assert "add_any" not in behind
