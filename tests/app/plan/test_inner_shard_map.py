"""The user's own `shard_map`: its body runs unchanged."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import meshwright as mw

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(8, 16)), jnp.float32)
W = jnp.asarray(RNG.normal(size=(16, 24)), jnp.float32)


def test_every_device_has_its_own_effects():
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    seen = []

    def inner(x):
        jax.debug.callback(lambda s: seen.append(float(s)), x.sum())
        return lax.psum(x, "x")

    def fn(x):
        return jax.shard_map(inner, mesh=mesh, in_specs=P("x"), out_specs=P())(x)

    step = mw.partition(fn, {"x": 8})
    np.testing.assert_allclose(step(X)[0], X.sum(0), rtol=1e-4, atol=1e-5)
    jax.effects_barrier()
    np.testing.assert_allclose(sorted(seen), sorted(X.sum(1)), rtol=1e-4, atol=1e-5)


def test_axes_of_a_shard_map_are_not_split_by_a_reshape():
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))

    def fn(x, w):
        heads = (x @ w).reshape(8, 4, 6)  # 8 devices over 4 heads would spill
        doubled = jax.shard_map(
            lambda x: x * 2, mesh=mesh, in_specs=P("x"), out_specs=P("x")
        )
        return doubled(x), heads

    step = mw.partition(fn, {"x": 8}, [mw.shard({"w": 1}, "x")])
    assert step.check(X, W).ok
    assert step.plan(X, W).spec("w") == P(None, "x")
