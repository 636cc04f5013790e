"""Multi-output fusion: fusions that share a kernel, and laws of any merging."""

import jax
import jax.numpy as jnp

from meshwright.predict.compilers.model.fusion import FusionKind
from meshwright.predict.compilers.xla.multi_output_fusion import merge_fusions
from meshwright.program.capture import capture
from tests.predict.compilers.compiled import fusions_of

SQUARE = jax.ShapeDtypeStruct((256, 256), jnp.float32)


def merged(fn, *args):
    program = capture(fn, args).program
    fusions = fusions_of(program)
    return program, fusions, merge_fusions(fusions)


def adam(weight, moment, variance, gradient):
    moment = 0.9 * moment + 0.1 * gradient
    variance = 0.99 * variance + 0.01 * gradient**2
    return weight - moment / (jnp.sqrt(variance) + 1e-8), moment, variance


def test_an_optimizer_reads_each_array_once():
    program, fusions, passes = merged(adam, *[SQUARE] * 4)
    assert len(fusions) > 1
    (only,) = passes
    assert set(only.reads) == set(program.inputs)
    assert len(only.writes) == 3


def test_a_product_and_its_elementwise_consumers_are_one_kernel():
    def fn(x, w):
        y = x @ w
        return jnp.tanh(y), y

    _, _, passes = merged(fn, SQUARE, SQUARE)
    (only,) = passes
    assert only.kind is FusionKind.PRODUCT
    assert len(only.writes) == 2


def test_no_kernel_has_two_products():
    def fn(x, v, w):
        return x @ v, x @ w

    _, _, passes = merged(fn, SQUARE, SQUARE, SQUARE)
    assert [p.kind for p in passes] == [FusionKind.PRODUCT] * 2


def test_a_reduction_joins_the_kernel_that_writes_its_operand():
    def fn(x):
        y = jnp.tanh(x)
        return y, y.sum()

    _, _, passes = merged(fn, SQUARE)
    assert len(passes) == 1


def test_a_fusion_that_reads_a_whole_reduction_comes_after_its_kernel():
    """The division of a softmax reads the sum of its numerator."""

    def fn(x):
        y = jnp.exp(x)
        return y / y.sum(-1, keepdims=True), y

    _, _, passes = merged(fn, SQUARE)
    made = {}
    for number, each in enumerate(passes):
        for value in each.writes:
            made[value] = number
    for number, each in enumerate(passes):
        assert all(made.get(v, -1) < number for v in each.reads)
    assert len(passes) == 2


def test_merging_keeps_writes_and_work_and_never_reads_more():
    def step(w, m, v, x):
        loss = lambda w: jnp.mean(jnp.tanh(x @ w) ** 2)  # noqa: E731
        return adam(w, m, v, jax.grad(loss)(w))

    _, fusions, passes = merged(step, *[SQUARE] * 4)
    assert {v for u in fusions for v in u.writes} == {
        v for p in passes for v in p.writes
    }
    assert sum(u.work.flops for u in fusions) == sum(p.work.flops for p in passes)
    assert sum(len(p.reads) for p in passes) <= sum(len(u.reads) for u in fusions)
