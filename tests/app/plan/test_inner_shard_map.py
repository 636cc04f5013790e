"""The user's own `shard_map`: its body runs unchanged."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
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


def test_a_shard_map_over_axes_of_size_1_decides_nothing():
    """Its collectives are identities, views or zeros, and its body is partitioned."""
    mesh = jax.sharding.Mesh(
        np.array(jax.devices()[:1]).reshape(1, 1), ("data", "tensor")
    )

    def inner(x, w):
        def layer(h, _):
            return lax.psum(jnp.tanh(h @ w @ w.T), "tensor"), None

        h, _ = lax.scan(layer, x, None, length=2)
        h = lax.pmean(h, ("data", "tensor")) + lax.axis_index("data")
        h = lax.all_gather(h, "tensor", axis=1)  # [8, 1, 16]
        h = lax.psum_scatter(h.sum(1), "data", tiled=True)
        h = lax.all_to_all(h, "data", 0, 1, tiled=True)
        h = lax.ppermute(h, "data", [(0, 0)]) + lax.ppermute(h, "data", [])
        return h * lax.axis_size("data")

    def fn(x, w):
        specs = (P("data", "tensor"), P(None, "tensor"))
        return jax.shard_map(
            inner, mesh=mesh, in_specs=specs, out_specs=P("data"), check_vma=False
        )(x, w)

    step = mw.partition(fn, {"data": 4, "model": 2}, [mw.shard({"x": 0}, "data")])
    plan = step.plan(X, W)
    assert plan.spec("x") == plan.spec("out") == P("data", None)
    assert plan.counts["all_gather"] == 0
    np.testing.assert_allclose(step(X, W), fn(X, W), rtol=1e-5, atol=1e-5)


def test_a_constraint_on_a_mesh_of_size_1_decides_nothing():
    """The mesh of a one-device program may have axes with the names of ours."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "m"))

    def fn(x, w):
        spec = jax.sharding.NamedSharding(mesh, P("m"))
        return lax.with_sharding_constraint(jnp.tanh(x @ w), spec)

    step = mw.partition(fn, {"data": 4}, [mw.data_parallel("data", "x")])
    plan = step.plan(X, W)
    assert plan.spec("out") == P("data", None)
    assert not any(effect.refused for effect in plan.steps)


@pytest.mark.parametrize("ours", [{"data": 4}, {"data": 4, "tensor": 2}])
def test_axes_of_size_1_beside_larger_ones_are_as_if_not_there(ours):
    """Also where our mesh has a larger axis of that name."""
    devices = np.array(jax.devices()[:4]).reshape(4, 1)
    mesh = jax.sharding.Mesh(devices, ("data", "tensor"))

    def inner(x, w):
        def layer(h, _):
            return lax.psum(jnp.tanh(h @ w @ w.T), "tensor"), None

        h, _ = lax.scan(layer, x, None, length=2)
        h = h + lax.pmean(h, ("data", "tensor")) + lax.axis_index(("data", "tensor"))
        h = lax.all_gather(h, "tensor", axis=1).sum(1)
        h = lax.all_gather(h, ("tensor", "data"), axis=0, tiled=True)
        return lax.psum_scatter(h, ("data", "tensor"), tiled=True)

    def fn(x, w):
        into, out = (P("data", "tensor"), P("tensor")), P(("data", "tensor"))
        return jax.shard_map(
            inner, mesh=mesh, in_specs=into, out_specs=out, check_vma=False
        )(x, w)

    step = mw.partition(fn, ours, [])
    assert step.plan(X, W).spec("out") == P("data", None)
    np.testing.assert_allclose(step(X, W), fn(X, W), rtol=1e-5, atol=1e-5)
