"""Calls inside a program are inlined, so that their ops can be partitioned."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.program.capture import capture


def kinds(program):
    return {op.kind for op in program.walk()}


@pytest.mark.parametrize(
    "call",
    [
        jax.jit(jnp.tanh),
        jax.checkpoint(lambda x: jax.lax.map(jnp.tanh, x)),
        jax.custom_jvp(jnp.tanh),
        jax.vmap(lambda x: x * jnp.searchsorted(jnp.arange(8.0), x)),
        lambda x: x * jnp.nonzero(x[:, 0], size=4)[0][:, None],
    ],
    ids=["jit", "map in checkpoint", "custom_jvp", "searchsorted", "nonzero"],
)
def test_all_calls_are_inlined(call):
    if isinstance(call, jax.custom_jvp):
        call.defjvp(lambda xs, dots: (jnp.tanh(*xs), dots[0] * (1 - xs[0] ** 2)))
    x = jax.ShapeDtypeStruct((4, 8), jnp.float32)
    found = kinds(capture(jax.grad(lambda x: call(x).sum()), (x,)).program)
    assert not {k for k in found if "call" in k or "jaxpr" in k or k in ("jit", "pjit")}


def test_a_loop_in_a_checkpoint_is_partitioned_like_others():
    """JAX evaluates such a loop forward by a call of its own (`eval_jaxpr`)."""

    def loss(w, x):
        y = jax.lax.map(
            jax.checkpoint(lambda z: jnp.tanh(z @ w)), jnp.swapaxes(x, 0, 1)
        )
        return jnp.mean(y**2)

    def step(w, x):
        return jax.grad(jax.checkpoint(loss))(w, x)

    w = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    x = jax.ShapeDtypeStruct((8, 4, 16), jnp.float32)
    tactics = [mw.data_parallel("data", "x")]
    counts = mw.partition(step, {"data": 8}, tactics).plan(w, x).counts
    assert counts["all_gather"] == 0


@pytest.mark.parametrize("method", ["scan", "scan_unrolled", "compare_all"])
def test_searchsorted_is_partitioned(method):
    """JAX lowers `searchsorted` only when it compiles."""

    def places(bins, x):
        search = partial(jnp.searchsorted, method=method)
        return jax.vmap(search)(bins, x), search(jnp.arange(8.0), x)

    bins = jnp.sort(jax.random.normal(jax.random.key(0), (8, 16)), axis=1)
    x = 8 * jax.random.uniform(jax.random.key(1), (8, 6))
    step = mw.partition(places, {"data": 8}, [mw.data_parallel("data")])
    for found, wanted in zip(step(bins, x), places(bins, x), strict=True):
        np.testing.assert_array_equal(found, wanted)
    moved = step.plan(bins, x).counts
    assert not any(moved.values()), moved


@pytest.mark.parametrize(("size", "gathers"), [(1, 1), (3, 2)])
def test_a_1x1_convolution_and_its_gradient_read_the_same_kernel(size, gathers):
    """JAX reverses kernels in gradients, which has no effect on kernels of 1x1."""

    def loss(kernel, x):
        dims = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(
            jnp.tanh(x), kernel, (1, 1), "SAME", dimension_numbers=dims
        )
        return jnp.sum(y**2)

    kernel = jax.ShapeDtypeStruct((size, size, 8, 16), jnp.float32)
    x = jax.ShapeDtypeStruct((8, 4, 4, 8), jnp.float32)
    both = jax.grad(loss, (0, 1))
    program = capture(both, (kernel, x)).program
    assert ("rev" in kinds(program)) == (size > 1)
    tactics = [mw.data_parallel("data", "x"), mw.zero(3, "data", "kernel")]
    plan = mw.partition(both, {"data": 8}, tactics).plan(kernel, x)
    assert plan.counts["all_gather"] == gathers
