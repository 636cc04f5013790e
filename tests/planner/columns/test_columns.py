"""Propagation and prices over columns equal those of `Propagator` and of the model."""

import math
import random
from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import SearchError
from meshwright.machine import Mesh
from meshwright.partitioner.decide import start_workspace
from meshwright.partitioner.propagate import Graph, PartialSums
from meshwright.planner.columns.graph_columns import columns_of
from meshwright.planner.columns.propagation import cut, new_worklist
from meshwright.planner.columns.state_cells import CellRows, start_cells
from meshwright.planner.integer_program.projection import read_strategy
from meshwright.planner.solve.space import price
from meshwright.planner.strategies.symmetry import (
    Runs,
    group_nodes,
    reduce_by_symmetry,
    split_by_inputs,
)
from meshwright.planner.tree.cut_problem import CutProblem
from meshwright.planner.tree.tree_search import make_problem
from tests.planner.programs import DEEP, MLP, space_of
from tests.planner.programs import shape as f32
from zoo import gpt3, lstm, moe


def norm_step(weights):
    """The norm of all weights, of which axes may cut some and not others."""
    return jnp.sqrt(jnp.stack([(w**2).sum() for w in weights]).sum())


NORM = norm_step, ([f32(16, 6), f32(8, 8), f32(3, 5), f32(8, 4)],)

PROGRAMS = {
    "norm": lambda: NORM,
    "products": lambda: MLP,
    "layers": lambda: DEEP,
    "attention": gpt3.tiny,
    "scan": lstm.tiny,
    "experts": moe.tiny,
}
MESHES = ({"batch": 4, "model": 2}, {"batch": 2, "model": 16})
"""A program with 8 heads splits the axis of 16 into sub-axes."""


@cache
def captured_of(name):
    fn, args = PROGRAMS[name]()
    captured = mw.partition(fn, MESHES[0]).capture(*args)
    return captured, Graph(captured.program, captured.ties)


def start(name, mesh=MESHES[0]):
    captured, graph = captured_of(name)
    return start_workspace(captured, Mesh(mesh), graph)


def single_nodes(work):
    """A reduction in which each node is a group of its own."""
    return group_nodes(Runs(work.graph), range(len(work.graph.nodes)))


def priced_on(space, work, reduced):
    return price(space.pricing(), work, reduced, tuple(work.state.size))


def random_cuts(work, rng, most=5):
    """Node, axis and factor of a few cuts of inputs, not all of which are legal."""
    inputs = [node for node in work.graph.input_nodes if node.sizes]
    for _ in range(rng.randint(1, most)):
        node = rng.choice(inputs)
        yield node, rng.choice(list(work.state.size)), rng.randrange(len(node.sizes))


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_with_one_node_a_group_propagation_equals_the_propagators(name, mesh):
    work = start(name, mesh)
    reduced = single_nodes(work)
    columns = columns_of(work.state, reduced)
    worklist, axes = new_worklist(columns), list(work.state.size)
    for seed in range(3):
        work = start(name, mesh)
        cells = np.array(start_cells(columns, work.state, reduced))
        for node, axis, factor in random_cuts(work, random.Random(seed)):
            refusal = work.propagator.cut(node, axis, factor)
            is_cut = cut(columns, cells, worklist, node.index, axes.index(axis), factor)
            assert is_cut == (refusal is None)
            wanted = start_cells(columns, work.state, reduced)
            assert np.array_equal(cells, wanted), (node.label, axis, factor)


@pytest.mark.parametrize("name", ["layers", "attention"])
def test_propagation_on_the_reduced_graph_decides_nearly_all_nodes_alike(name):
    """Differences are at layers where one group ends and another does not.

    Of eight layers, the `up` of six may form a group, and the `down` of five. A cut of one
    group then reaches a layer more, or less, of the other.
    """
    work = start(name)
    reduced = split_by_inputs(work.graph, reduce_by_symmetry(work.state))
    columns = columns_of(work.state, reduced)
    worklist, axes = new_worklist(columns), list(work.state.size)
    wrong = total = 0
    for seed in range(8):
        work = start(name)
        cells = np.array(start_cells(columns, work.state, reduced))
        for node, axis, factor in random_cuts(work, random.Random(seed), most=3):
            group = reduced.class_of[node.index]
            members = [work.graph.nodes[i] for i in reduced.classes[group].members]
            work.propagator.cut_all([(member, factor) for member in members], axis)
            cut(columns, cells, worklist, group, axes.index(axis), factor)
        for node, group in zip(work.graph.nodes, reduced.class_of, strict=True):
            own = work.state.factor_of[node.index]
            total += len(axes)
            wrong += sum(cells[group, i] != own.get(a, -1) for i, a in enumerate(axes))
    assert wrong <= total / 8 / 2


@pytest.mark.parametrize("name", ["norm", "layers"])
def test_reductions_are_placed_as_the_carrier_places_them(name):
    space, mesh = space_of(PROGRAMS[name]()), Mesh({"data": 4, "model": 2})
    work = start_workspace(space.captured, mesh, space.graph)
    rng, differ, total = random.Random(0), 0, 0
    for node, axis, factor in random_cuts(work, rng, most=9):
        work.propagator.cut(node, axis, factor)
        priced = priced_on(space, work, single_nodes(work))
        single = CutProblem(priced, 1e12)
        choices, partial_sums = single.choices(single.start()), PartialSums(work.state)
        for own, choice, each in zip(
            priced.model.choices, choices, work.graph.nodes, strict=False
        ):
            wanted = read_strategy(work.state, partial_sums, each)
            differ += wanted in own and own[choice] != wanted
            total += 1
    assert differ <= 0.005 * total


def test_prices_equal_those_of_the_model():
    space, mesh = space_of(PROGRAMS["layers"]()), Mesh({"data": 4, "model": 2})
    work = start_workspace(space.captured, mesh, space.graph)
    reduced = split_by_inputs(work.graph, reduce_by_symmetry(work.state))
    pricer = priced_on(space, work, reduced).pricer
    problem = make_problem(space, mesh)
    rng, state = random.Random(0), problem.start()
    while actions := problem.actions(state):
        state = problem.apply(state, rng.choice(actions))
        cost, choices = problem.measure(state), problem.choices(state)
        assert math.isclose(cost.seconds, pricer.seconds(choices), rel_tol=1e-9)
        assert math.isclose(
            cost.bytes, pricer.memory_curve(choices).max(), rel_tol=1e-9
        )


def test_nodes_of_different_inputs_are_in_different_groups():
    work = start("attention")
    coarse = reduce_by_symmetry(work.state)
    fine = split_by_inputs(work.graph, coarse)
    group = {
        path: fine.class_of[node.index]
        for path, node in zip(work.paths, work.graph.input_nodes, strict=True)
    }
    moments = "state.optimizer.0.mu.blocks.{}.{}"
    assert group[moments.format(0, "q")] == group[moments.format(1, "q")]
    assert group[moments.format(0, "q")] != group[moments.format(0, "k")]
    for part in ("classes", "edges"):
        runs = [sum(each.runs for each in getattr(f, part)) for f in (coarse, fine)]
        assert math.isclose(*runs)


def test_cells_hold_the_decisions_of_a_state():
    work = start("products")
    reduced = single_nodes(work)
    columns = columns_of(work.state, reduced)
    node = work.graph.input_nodes[-1]
    work.propagator.cut(node, "batch", 0)
    cells, rows = start_cells(columns, work.state, reduced), CellRows.of(columns)
    assert cells[node.index].tolist() == [0, -1]
    assert cells[rows.ranks + node.index].tolist() == [0, 0]
    assert cells[rows.total, 0] == len(work.state.scattered)


def test_too_many_axes_are_refused():
    space = space_of(MLP, devices=32)
    mesh = Mesh(dict.fromkeys("abcde", 2))
    with pytest.raises(
        SearchError, match=r"needs 5 \(sub-\)axes; tree search allows 4"
    ):
        make_problem(space, mesh)
