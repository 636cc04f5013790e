"""Inner products of flattened arrays: one all-reduce, whatever dim is cut."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.program.capture import capture

RNG = np.random.default_rng(0)
X, Y = (jnp.asarray(RNG.normal(size=(8, 16, 24)), jnp.float32) for _ in range(2))


def norms(x, y):
    return jnp.vdot(x, x), jnp.vdot(x, y)


def norm_in_a_loop(x, y):
    def add(total, row):
        return total + jnp.vdot(row, row), None

    return jax.lax.scan(add, 0.0, x)[0], y


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_inner_products_need_only_one_all_reduce(dim):
    step = mw.partition(norms, {"data": 8}, [mw.shard({"x": dim, "y": dim}, "data")])
    counts = step.plan(X, Y).counts
    assert counts["all_reduce"] == 1  # both scalars together
    assert sum(counts.values()) == 1
    np.testing.assert_allclose(step(X, Y), norms(X, Y), rtol=1e-4)


def test_an_inner_product_in_a_loop_is_one_too():
    step = mw.partition(norm_in_a_loop, {"data": 8}, [mw.shard({"x": 2}, "data")])
    assert step.plan(X, Y).counts["all_gather"] == 0
    assert step.check(X, Y).ok


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: jnp.dot(x.ravel(), y.T.ravel()),
        lambda x, y: jnp.dot(x.ravel(), y.reshape(16, -1).ravel()[::-1]),
        lambda x, y: jnp.dot(x.ravel(), y.reshape(16, -1).ravel()),
    ],
    ids=["transposed", "reversed", "reshaped"],
)
def test_other_products_stay(fn):
    program = capture(fn, (X, Y)).program
    (product,) = (op for op in program.ops if op.kind == "dot_general")
    assert len(product.operands[0].shape) == 1
