"""Data moved along a dim that is cut: as many bytes as `jax.jit` moves, or fewer."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import meshwright as mw
from benchmarks.partitioning.moved_programs import (
    PROGRAMS,
    U,
    heat,
    in_time,
    inner_heat_2d,
    received,
    sharded,
)

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("name", PROGRAMS)
def test_only_what_devices_lack_is_moved(name):
    fn, args, dims, most = PROGRAMS[name]
    step = sharded(fn, args, dims, {"x": 8})
    found, expected = step(args), fn(*args)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        found,
        expected,
    )
    assert received(step.plan(args), 8) <= most


@pytest.mark.parametrize("rows", [64, 40, 16, 8])
def test_a_halo_may_be_larger_than_a_part(rows):
    """Also of one row per device, and where extents have only the parts in common."""

    def fn(u):
        wide = jnp.pad(u, ((3, 5), (0, 0)), mode="wrap")
        near = wide[6:-2] + wide[:-8] * 2 + wide[8:] * 3
        inner = u.at[2:-3].add(u[5:] * u[:-5])
        return near, jnp.roll(inner, -3, 0), u[:-5].max(0), jnp.pad(u, ((1, 7), (0, 0)))

    u = U[:rows]
    step = sharded(fn, (u,), 0, {"x": 8})
    assert step.check((u,)).ok


def test_both_dims_may_be_cut():
    fn = in_time(lambda u: heat(inner_heat_2d(u)) + jnp.roll(u, (-1, 2), (0, 1)))
    cuts = [mw.shard({"u": 0}, "x"), mw.shard({"u": 1}, "y")]
    step = mw.partition(lambda u: fn(u), {"x": 4, "y": 2}, cuts)
    assert step.check(U).ok
    assert {c.kind for c in step.plan(U).collectives} == {"permute"}


def test_the_edges_of_nan_do_not_spread():
    """What lies beside a window in its frame is not read."""
    u = U.at[0].set(jnp.nan).at[-1].set(jnp.inf)
    fn = lambda u: (u[1:-1].sum(), (u[1:-1].T @ u[1:-1]), u[2:-1].min())  # noqa: E731
    step = sharded(fn, (u,), 0, {"x": 8})
    for found, expected in zip(step((u,)), fn(u), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
        assert math.isfinite(float(jnp.sum(found)))


def test_equal_candidates_keep_the_order_of_their_positions():
    x = jnp.asarray(RNG.integers(0, 5, size=(3, 64)), jnp.float32).at[1, 9].set(jnp.nan)
    fn = lambda x: lax.top_k(x, 6)  # noqa: E731
    values, places = sharded(fn, (x,), 1, {"x": 8})((x,))
    expected = fn(x)
    np.testing.assert_array_equal(places, expected[1])
    np.testing.assert_array_equal(values, expected[0])


def test_a_saved_plan_makes_the_same_dims_even():
    fn = in_time(lambda u: heat(inner_heat_2d(u)))
    plan = mw.partition(fn, {"x": 8}, [mw.shard({"u": 0}, "x")]).plan(U)
    step = mw.partition(fn, mw.Plan.from_json(plan.to_json()))
    assert step.plan(U).counts == plan.counts
    np.testing.assert_allclose(step(U), fn(U), rtol=1e-4, atol=1e-5)
    annotated = jax.jit(plan.annotate(fn), in_shardings=plan.in_shardings)
    np.testing.assert_allclose(annotated(U), fn(U), rtol=1e-4, atol=1e-5)
