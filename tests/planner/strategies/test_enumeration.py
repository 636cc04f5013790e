"""Strategies of nodes: which there are, and that there are not too many."""

import jax.numpy as jnp

import meshwright as mw
from meshwright.machine import Mesh
from meshwright.partitioner.decide import start_workspace
from meshwright.partitioner.propagate import PartialSums
from meshwright.planner.integer_program.projection import read_strategy
from meshwright.planner.strategies.enumeration import Strategies
from tests.planner.programs import MESH, MLP, shape, space_of


def work_of(space, mesh, tactics=()):
    work = start_workspace(space.captured, Mesh(mesh), space.graph)
    for tactic in tactics:
        tactic.apply(work)
    return work


def test_the_first_strategy_decides_nothing():
    space = space_of(MLP)
    state = work_of(space, MESH).state
    strategies = Strategies(state, state.mesh.axes)
    for node in space.graph.nodes:
        assert strategies.of(node)[0].axes == ()
        assert len(set(strategies.of(node))) == len(strategies.of(node))


def test_strategies_of_tactics_are_enumerated():
    tactics = [mw.data_parallel("data"), mw.megatron("model"), mw.zero(3, "data")]
    space = space_of(MLP)
    decided = work_of(space, MESH, tactics).state
    free = work_of(space, MESH).state
    strategies = Strategies(free, free.mesh.axes)
    partial_sums = PartialSums(decided)
    for node in space.graph.nodes:
        assert read_strategy(decided, partial_sums, node) in strategies.of(node)


def test_every_strategy_keeps_the_decisions_of_the_state():
    space = space_of(MLP)
    state = work_of(space, MESH, [mw.data_parallel("data")]).state
    strategies = Strategies(state, ["model"])
    for node in space.graph.nodes:
        for strategy in strategies.of(node):
            axes = dict(strategy.axes)
            for factor, cut in state.axes_of[node.index].items():
                assert axes.get(factor, ())[: len(cut)] == cut


def test_sub_axes_of_a_mesh_axis_split_the_same_factor():
    """A reshape splits an axis of 8 into three sub-axes; strategies stay few."""

    def step(x):
        y = x.reshape(2, 2, 2, 64, 16)
        return jnp.sum(y * y, axis=(0, 1, 2))

    space = space_of((step, (shape(512, 16),)))
    work = work_of(space, {"data": 8})
    assert len(work.sub_axes["data"]) > 1
    strategies = Strategies(work.state, work.state.mesh.axes)
    assert max(len(strategies.of(node)) for node in space.graph.nodes) < 40
    for node in space.graph.nodes:
        for strategy in strategies.of(node):
            cut = [axis for _, axes in strategy.axes for axis in axes]
            assert len(cut) in (0, len(work.sub_axes["data"]))
