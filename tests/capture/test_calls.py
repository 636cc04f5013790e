"""Calls inside a program are opened, so that what they compute can be cut."""

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.capture import capture


def kinds(program):
    return {op.kind for op in program.walk()}


@pytest.mark.parametrize(
    "call",
    [
        jax.jit(jnp.tanh),
        jax.checkpoint(lambda x: jax.lax.map(jnp.tanh, x)),
        jax.custom_jvp(jnp.tanh),
    ],
    ids=["jit", "map in checkpoint", "custom_jvp"],
)
def test_no_call_is_left(call):
    if isinstance(call, jax.custom_jvp):
        call.defjvp(lambda xs, dots: (jnp.tanh(*xs), dots[0] * (1 - xs[0] ** 2)))
    x = jax.ShapeDtypeStruct((4, 8), jnp.float32)
    found = kinds(capture(jax.grad(lambda x: call(x).sum()), (x,)).program)
    assert not {k for k in found if "call" in k or "jaxpr" in k or k in ("jit", "pjit")}


def test_a_loop_in_a_checkpoint_is_cut_like_any_other():
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
