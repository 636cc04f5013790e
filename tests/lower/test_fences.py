"""Device programs that a compiler takes: barriers and parts where it would fail."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import meshwright as mw

X = jnp.sin(jnp.arange(3 * 8 * 4 * 16.0)).reshape(3, 8, 4, 16)
TACTICS = [mw.data_parallel("data"), mw.fsdp("data")]


def accumulated(params, batches, rounded):
    """Gradients of a scale, added up over three batches in 32 bits."""

    def loss(params, x):
        scale = params["scale"]
        scale = scale.astype(jnp.bfloat16) if rounded else scale
        return jnp.tanh(x * scale.astype(jnp.float32) @ params["w"]).mean()

    def turn(total, x):
        return jax.tree.map(jnp.add, total, jax.grad(loss)(params, x)), None

    total, _ = lax.scan(turn, jax.tree.map(jnp.zeros_like, params), batches)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, total)


@pytest.mark.parametrize("rounded", [True, False])
def test_rounded_sums_that_a_loop_adds_up_are_fenced(rounded):
    params = {"scale": jnp.ones(16), "w": jnp.cos(jnp.arange(256.0)).reshape(16, 16)}

    def step(params, batches):
        return accumulated(params, batches, rounded)

    partitioned = mw.partition(step, {"data": 4}, TACTICS)
    lowered = partitioned.plan(params, X).decided.lowered
    inside = [op for op in lowered.program.walk() if op not in lowered.program.ops]
    assert "reduce_scatter" in [op.kind for op in inside]
    fenced = [op for op in inside if op.kind == "optimization_barrier"]
    assert [op.results[0].shape for op in fenced] == [(4,)] * rounded
    assert partitioned.check(params, X).ok


def test_sums_of_complex_numbers_are_those_of_their_parts():
    """Of which the TPU compiler has no reduce-scatter."""

    def step(params, x):
        def loss(params):
            made = x.astype(jnp.complex64) @ params["w"]
            return (made.real**2 + made.imag**2).mean()

        grads = jax.grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * jnp.conj(g), params, grads)

    params = {"w": jnp.exp(1j * jnp.arange(256.0)).reshape(16, 16)}
    partitioned = mw.partition(step, {"data": 4}, TACTICS)
    plan = partitioned.plan(params, X[0, :, 0])
    assert plan.counts["reduce_scatter"] == 1
    assert partitioned.check(params, X[0, :, 0]).ok
    text = str(jax.make_jaxpr(partitioned)(params, X[0, :, 0]))
    (line,) = [each for each in text.splitlines() if "= reduce_scatter[" in each]
    assert ":f32[" in line
