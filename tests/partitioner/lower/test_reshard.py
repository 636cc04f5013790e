"""Resharding: the moves between any two shardings, and where scattered axes go."""

import itertools
import random

import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.partitioner.lower import Lowered
from meshwright.partitioner.lower.reshard import emit_step, local_shape, reshard_steps
from meshwright.program.ir import Program, Sharding, Value, whole
from meshwright.program.ops import Builder
from meshwright.run.local.spmd import make_executable
from tests.partitioner.lower.verifier import verify_lowered

MESH = mw.Mesh({"a": 2, "b": 2, "c": 2})
X = jnp.arange(64.0).reshape(8, 8)


def shardings() -> list[Sharding]:
    """Every way to cut two dims by some of three axes, in any order."""
    found = []
    for count in range(4):
        for axes in itertools.permutations(MESH.axes, count):
            found += [Sharding((axes[:i], axes[i:])) for i in range(count + 1)]
    return found


def reshard(have: Sharding, need: Sharding) -> Lowered:
    """The identity, stored one way and handed back the other."""
    start = Value(local_shape(X.shape, have, MESH), "float32")
    builder, local = Builder(MESH), start
    for step in reshard_steps(have, need):
        local = emit_step(builder, local, step)
    program = Program((start,), tuple(builder.ops), (local,))
    return Lowered(program, MESH, (have,), (need,))


def test_any_sharding_reaches_any_other():
    source = Value(X.shape, "float32")
    for have, need in itertools.product(shardings(), repeat=2):
        verify_lowered(reshard(have, need), Program((source,), (), (source,)))


@pytest.mark.parametrize("seed", range(24))
def test_the_elements_arrive_where_they_belong(seed: int):
    have, need = random.Random(seed).choices(shardings(), k=2)
    (got,) = make_executable(reshard(have, need))([X])
    np.testing.assert_array_equal(got, X)
    for shard in got.addressable_shards:
        np.testing.assert_array_equal(shard.data, X[shard.index])


def test_nothing_moves_to_cut_what_is_whole():
    for need in shardings():
        kinds = {step.kind for step in reshard_steps(whole(2), need)}
        assert kinds <= {"all_slice"}


def test_axes_move_between_dims_by_one_all_to_all():
    have, need = Sharding((("a", "b"), ())), Sharding(((), ("a", "b")))
    assert [step.kind for step in reshard_steps(have, need)] == ["all_to_all"]


def test_axes_scattered_on_one_dim_stand_as_the_reader_has_them():
    def step(state, x, w):
        return state + x.T @ w

    batch = [mw.shard({"x": 0, "w": 0}, axis) for axis in ("a", "b")]
    state = [mw.shard({"state": 0}, axis) for axis in ("b", "a")]
    run = mw.partition(step, MESH, batch + state, donate_argnums=0)
    assert run.check(X, X, X).ok
    counts = run.plan(X, X, X).counts
    assert {k: n for k, n in counts.items() if n} == {"reduce_scatter": 1}
