"""Programs in 16 bits, computed in 32: as if they had been written so."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from meshwright.program.capture import capture
from meshwright.program.capture.wide_floats import is_low_precision, widen_floats
from meshwright.run.local.execute import run_program
from tests.program.ir.verifier import verify

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 16)).astype(np.float32)
W = RNG.normal(size=(16, 16)).astype(np.float32)


def products(x, w, half):
    h = jnp.tanh(x.astype(half) @ w.astype(half))
    wide = jnp.matmul(h, w.astype(half), preferred_element_type=jnp.float32)
    return h * half(0.3), wide.astype(jnp.float32)


def loops(x, w, half):
    def layer(h, _):
        return jax.checkpoint(lambda h: jnp.tanh(h @ w.astype(half)))(h), h.sum()

    h, sums = lax.scan(layer, x.astype(half), None, length=3)
    h = lax.while_loop(lambda h: h.sum() > 100, lambda h: h * half(0.5), h)
    return lax.cond(h.sum() > 0, jnp.sin, jnp.cos, h), sums


def gradients(x, w, half):
    def loss(w):
        out = jax.nn.softmax(x.astype(half) @ w, -1)
        return (out.astype(jnp.float32) ** 2).sum()

    return jax.value_and_grad(loss)(w.astype(half))


def looked_up(x, w, half):
    tokens = jnp.arange(16).reshape(2, 8) % 8

    def loss(table):
        rows = table.astype(half)[tokens]
        return (rows.astype(jnp.float32) ** 2).sum()

    return jnp.asarray(x, half).at[0].max(half(0.5)), jax.grad(loss)(x)


def constants(x, w, half):
    table = jnp.asarray(np.linspace(-1, 1, 16), half)
    return x.astype(half) * table, jnp.full((4,), 0.5, half), jnp.zeros(3, half)


def rounded(x, w, half):
    return lax.reduce_precision(x * 3, 8, 7).astype(half) @ w.astype(half)


@pytest.mark.parametrize("half", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("fn", [products, loops, gradients, looked_up, constants])
def test_the_result_is_that_of_the_function_in_32_bits(fn, half):
    program = widen_floats(capture(lambda x, w: fn(x, w, half), (X, W)).program)
    verify(program)
    assert not any(
        is_low_precision(v.dtype) for op in program.walk() for v in op.results
    )
    got = jax.jit(lambda *leaves: run_program(program, leaves))(X, W)
    wanted = jax.tree.leaves(fn(X, W, jnp.float32))
    for one, other in zip(got, wanted, strict=True):
        assert one.dtype == jnp.float32
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-3)


def test_explicit_rounding_is_dropped():
    program = widen_floats(
        capture(lambda x, w: rounded(x, w, jnp.bfloat16), (X, W)).program
    )
    (got,) = run_program(program, (X, W))
    np.testing.assert_allclose(got, 3 * X @ W, rtol=1e-5, atol=1e-4)


def test_ops_that_depend_on_bits_stay_narrow():
    def fn(x):
        bits = lax.bitcast_convert_type(x.astype(jnp.bfloat16), jnp.uint16)
        noise = jax.random.uniform(jax.random.key(0), (4,), jnp.bfloat16)
        return bits, noise

    program = widen_floats(capture(fn, (X,)).program)
    verify(program)
    bits, noise = jax.jit(lambda x: run_program(program, (x,)))(X)
    wanted_bits, wanted_noise = fn(X)
    assert (bits == wanted_bits).all()
    np.testing.assert_allclose(noise, wanted_noise.astype(jnp.float32), atol=1e-2)
