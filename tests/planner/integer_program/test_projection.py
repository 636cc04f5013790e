"""Choices of an integer program, applied to programs that accumulate gradients."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import meshwright as mw
from meshwright.machine import Mesh
from meshwright.partitioner.propagate import PartialSums
from meshwright.planner.integer_program.projection import (
    ChosenStrategies,
    read_strategy,
    shape_of,
)
from meshwright.planner.strategies.strategy import ALL_REDUCE, KEEP_PARTIAL

MESH = Mesh({"data": 4})
W, XS = np.ones((8, 8), np.float32) / 8, np.ones((5, 16, 8), np.float32)


def step(w, xs):
    """Gradients in bfloat16, added up in float32."""

    def loss(w, x):
        return jnp.tanh(x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)).sum()

    def microbatch(total, x):
        return total + jax.grad(loss)(w, x), None

    return w - lax.scan(microbatch, jnp.zeros_like(w), xs)[0]


def with_ends(end_of):
    """The tactic that data parallelism amounts to, with other ends of open sums."""
    partitioned = mw.partition(step, MESH, [mw.shard({"xs": 1}, "data")])
    work = partitioned.plan(W, XS).decided.work
    partial_sums = PartialSums(work.state)
    strategies = [read_strategy(work.state, partial_sums, n) for n in work.graph.nodes]
    changed = [
        replace(
            each,
            partial_inputs=(),
            reductions=tuple((axis, end_of(end)) for axis, end in each.reductions),
        )
        for each in strategies
    ]
    return ChosenStrategies(tuple(changed), (), shape_of(work.graph))


def test_a_sum_that_a_search_makes_in_each_iteration_is_made_after_the_loop():
    tactic = with_ends(lambda end: ALL_REDUCE if end == KEEP_PARTIAL else end)
    found = mw.partition(step, MESH, [tactic])
    assert found.plan(W, XS).counts["all_reduce"] == 1
    assert found.check(W, XS).ok


def test_a_sum_that_a_search_scatters_is_scattered_where_it_is_made():
    tactic = with_ends(lambda end: 0)
    counts = mw.partition(step, MESH, [tactic]).plan(W, XS).counts
    assert counts["reduce_scatter"] == len(XS)
