"""The user's own `shard_map`: its body runs unchanged."""

import jax
import jax.experimental.pallas as pl
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


# -- several in one program, and gradients through them -----------------------------------

LINE = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))
GRID = jax.make_mesh((4, 2), ("d", "m"), axis_types=(AxisType.Auto,) * 2)
ROWS, SQUARE, EXPERTS = (
    jnp.asarray(RNG.normal(size=shape), jnp.float32)
    for shape in ((64, 8), (8, 8), (8, 8, 8))
)


def mapped(body, into, out, mesh=LINE, **options):
    return jax.shard_map(body, mesh=mesh, in_specs=into, out_specs=out, **options)


double = mapped(lambda w: 2 * w, P("d"), P("d"))
unchecked = mapped(lambda w: 2 * w, P("d"), P("d"), check_vma=False)
mean = mapped(lambda x: lax.pmean(x, "d"), P("d"), P())
largest = mapped(lambda x: lax.pmax(x.max(0), "d"), P("d"), P())
swapped = mapped(
    lambda x: lax.all_to_all(x, "d", 1, 0, tiled=True), P("d"), P(None, "d")
)
tiles = mapped(lambda x: x * 2, P("d", "m"), P("d", "m"), GRID)
summed = mapped(lambda x: lax.psum(x, "m"), P("d", "m"), P("d"), GRID)
partly = mapped(lambda x: x * 3, P("d"), P("d"), GRID, axis_names={"d"})
flat = mapped(lambda x: x + 1, P(("d", "m")), P(("d", "m")), GRID)
turned = mapped(lambda x: x - 1, P(("m", "d")), P(("m", "d")), GRID)


def ring_attention(q, k, v):
    def body(q, k, v):
        def step(carry, _):
            k, v, total, weight, top = carry
            scores = q @ k.T
            new = jnp.maximum(top, scores.max(-1, keepdims=True))
            share, kept = jnp.exp(scores - new), jnp.exp(top - new)
            total = total * kept + share @ v
            weight = weight * kept + share.sum(-1, keepdims=True)
            turn = [(i, (i + 1) % 8) for i in range(8)]
            k, v = (lax.ppermute(each, "d", turn) for each in (k, v))
            return (k, v, total, weight, new), None

        none = q[:, :1] * 0
        start = (k, v, q * 0, none, none - 1e9)
        (_, _, total, weight, _), _ = lax.scan(step, start, None, length=8)
        return total / weight

    return mapped(body, P("d"), P("d"), check_vma=False)(q, k, v)


def dispatch(x, w):
    def body(x, w):
        x = lax.all_to_all(x.reshape(8, -1, 8), "d", 0, 0)
        x = jnp.einsum("std,df->stf", x, w[0])
        return lax.all_to_all(x, "d", 0, 0).reshape(-1, 8)

    return mapped(body, P("d"), P("d"))(x, w)


def kernel(x):
    def write(source, target):
        target[...] = source[...] * 2 + 1

    def body(x):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pl.pallas_call(write, out_shape=shape, interpret=True)(x)

    return mapped(body, P("d"), P("d"), check_vma=False)(x)


def one_in_another(x):
    """Each over one axis of the mesh; the inner one sums over its own."""

    def outer(x):
        inner = jax.shard_map(
            lambda x: x + lax.psum(x.sum(), "m"),
            in_specs=P(None, "m"),
            out_specs=P(None, "m"),
            axis_names={"m"},
        )
        return inner(x) * lax.axis_index("d")

    over = mapped(outer, P("d"), P("d"), GRID, axis_names={"d"})
    return jax.jit(over)(x)


def in_scan(x, layer=double):
    return lax.scan(lambda h, _: (jnp.tanh(layer(h)), None), x, None, length=3)[0]


def grad(fn):
    return jax.jit(jax.grad(lambda *args: (fn(*args) ** 2).sum()))


PROGRAMS = {
    "two in a row": (lambda x: double(double(x)), (ROWS,), LINE),
    "a function between": (lambda x: double(jnp.tanh(double(x))), (ROWS,), LINE),
    "of one input": (lambda x: double(x) + unchecked(x), (ROWS,), LINE),
    "gradient": (grad(double), (ROWS,), LINE),
    "gradient, unchecked": (grad(unchecked), (ROWS,), LINE),
    "gradient of a mean": (grad(lambda x: mean(x) + mean(2 * x)), (ROWS,), LINE),
    "largest": (lambda x: largest(x) + largest(double(x)), (ROWS,), LINE),
    "scan": (grad(in_scan), (ROWS,), LINE),
    "scan, remat": (grad(lambda x: in_scan(x, jax.checkpoint(double))), (ROWS,), LINE),
    "in jit": (grad(jax.jit(lambda x: double(jax.jit(double)(x)))), (ROWS,), LINE),
    "swapped": (grad(lambda x: swapped(jnp.tanh(swapped(x)))), (ROWS,), LINE),
    "ring attention": (grad(ring_attention), (ROWS, ROWS + 1, 2 * ROWS), LINE),
    "experts": (
        grad(lambda x, w: dispatch(dispatch(x, w), w)), (ROWS, EXPERTS), LINE
    ),
    "Pallas": (lambda x: kernel(kernel(x)), (ROWS,), LINE),
    "vmap": (jax.vmap(lambda x: double(double(x))), (EXPERTS,), LINE),
    "branches": (
        lambda x: lax.cond(x.sum() > 0, lambda x: double(double(x)), double, x),
        (ROWS,),
        LINE,
    ),
    "two axes": (grad(lambda x: summed(tiles(tiles(x)))), (ROWS,), GRID),
    "other order of axes": (grad(lambda x: flat(turned(tiles(x)))), (ROWS,), GRID),
    "part of the axes": (grad(lambda x: partly(partly(x))), (ROWS,), GRID),
    "one in another": (
        lambda x: one_in_another(one_in_another(x)), (ROWS,), GRID
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_several_shard_maps_compute_what_one_device_does(name):
    fn, args, mesh = PROGRAMS[name]
    found = mw.partition(fn, dict(mesh.shape), [])(*args)
    np.testing.assert_allclose(found, fn(*args), rtol=2e-4, atol=2e-4)


def test_a_cut_that_is_there_already_moves_nothing():
    """A train step, with a tactic on the same axis."""
    layer = mapped(lambda x, w: jnp.tanh(x @ w), (P("d"), P()), P("d"))

    def step(w, x):
        loss, g = jax.value_and_grad(lambda w: (layer(layer(x, w), w) ** 2).mean())(w)
        return w - 0.1 * g, loss

    plan = mw.partition(step, {"d": 8}, [mw.data_parallel("d", "x")]).plan(SQUARE, ROWS)
    assert {c.kind for c in plan.collectives} == {"all_reduce"}
    assert plan.spec("x") == P("d", None)
