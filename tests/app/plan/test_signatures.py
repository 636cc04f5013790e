"""When a partitioned function is traced anew, and when not."""

import jax
import jax.numpy as jnp
import numpy as np

import meshwright as mw


def doubling():
    def double(x):
        return x * np.float64(2)

    return mw.partition(double, {"data": 4}, [mw.shard({"x": 0}, "data")])


def test_a_change_of_jax_configuration_is_traced_anew():
    step = doubling()
    assert step(np.ones(8, np.float64)).dtype == jnp.float32
    with jax.enable_x64(True):
        assert step(np.ones(8, np.float64)).dtype == jnp.float64
    assert step(np.ones(8, np.float64)).dtype == jnp.float32


def test_the_matmul_precision_is_that_of_the_call():
    def product(x, w):
        return x @ w

    step = mw.partition(product, {"data": 4}, [mw.shard({"x": 0}, "data")])
    args = np.ones((8, 8), np.float32), np.ones((8, 8), np.float32)

    def precisions():
        return step.jitted(*args).lower(*args).as_text()

    assert "HIGHEST" not in precisions()
    with jax.default_matmul_precision("highest"):
        assert "HIGHEST" in precisions()
