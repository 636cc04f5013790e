"""The checker by examples, and the solver against the checker and against enumeration."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.features.chips.constraints.checker import violations
from meshwright.features.chips.constraints.repair import ChipSolver, merge_chips
from meshwright.features.chips.graph.chip_graph import ChipEdge, ChipGraph, ChipOp
from tests.features.chips.graphs import chain, random_graphs, residual, valid_partitions

TRIANGLE = ChipGraph.of(
    [ChipOp(name, 1.0) for name in "abc"],
    [ChipEdge(0, 1), ChipEdge(1, 2), ChipEdge(0, 2)],
)


@pytest.mark.parametrize(
    ("chips", "words"),
    [
        ([1, 0, 1], "data flows backwards, from chip 1 to chip 0"),
        ([0, 0, 2], "chip 1 is skipped"),
        ([0, 1, 2], "from chip 0 to chip 2, and a path of 2 edges, too"),
        ([0, 1], "wanted 3 chips from 0 to 3"),
    ],
)
def test_broken_constraints_are_named(chips, words):
    assert words in next(violations(TRIANGLE, np.array(chips), 4))


@pytest.mark.parametrize("chips", [[0, 0, 0], [0, 0, 1], [0, 1, 1]])
def test_valid_partitions_pass(chips):
    assert not list(violations(TRIANGLE, np.array(chips), 4))


def test_branches_on_chips_that_do_not_meet_may_skip_a_chip():
    ops = [ChipOp(name, 1.0) for name in "abcd"]
    edges = [ChipEdge(0, 1), ChipEdge(0, 2), ChipEdge(1, 3), ChipEdge(2, 3)]
    graph = ChipGraph.of(ops, edges)
    assert not list(violations(graph, np.array([0, 1, 2, 3]), 4))


@settings(max_examples=30, deadline=None)
@given(random_graphs(), st.integers(1, 6), st.integers(0, 99))
def test_every_sample_and_every_repair_is_valid(graph, chips, seed):
    rng = np.random.default_rng(seed)
    solver = ChipSolver(graph, chips)
    candidate = rng.integers(0, chips, graph.num_ops)
    weights = rng.random((graph.num_ops, chips))
    order = rng.permutation(graph.num_ops)
    answers = solver.fix(candidate, order), solver.sample(weights, rng)
    for answer in (*answers, merge_chips(graph, candidate)):
        assert not list(violations(graph, answer, chips))


@settings(max_examples=12, deadline=None)
@given(random_graphs(most_ops=5))
def test_propagation_rules_out_no_valid_partition(graph):
    solver = ChipSolver(graph, 3)
    order = np.arange(graph.num_ops)[::-1].copy()
    for partition in valid_partitions(graph, 3):
        assert solver.fix(partition, order).tolist() == partition.tolist()


def test_a_repair_keeps_the_first_ops_of_the_order():
    solver = ChipSolver(chain([1.0, 1.0, 1.0, 1.0]), 4)
    backwards = np.array([3, 2, 1, 0])
    assert solver.fix(backwards, np.array([0, 1, 2, 3])).tolist() == [0, 0, 0, 0]
    assert solver.fix(backwards, np.array([2, 0, 1, 3])).tolist() == [0, 0, 0, 0]
    mixed = np.array([0, 2, 1, 2])
    assert solver.fix(mixed, np.array([1, 0, 2, 3])).tolist() == [0, 1, 1, 1]
    assert solver.fix(mixed, np.array([2, 0, 1, 3])).tolist() == [0, 1, 1, 2]


def test_samples_follow_their_weights():
    solver, rng = ChipSolver(chain([1.0, 1.0]), 2), np.random.default_rng(0)
    weights = np.array([[1.0, 0.0], [0.0, 1.0]])
    drawn = [solver.sample(weights, rng).tolist() for _ in range(20)]
    assert drawn == [[0, 1]] * 20


def test_no_random_assignment_of_a_deep_graph_is_valid_and_every_repaired_one_is():
    graph, rng = residual(40), np.random.default_rng(0)
    solver, order = ChipSolver(graph, 8), np.arange(81)
    drawn = [rng.integers(0, 8, graph.num_ops) for _ in range(200)]
    assert all(any(violations(graph, each, 8)) for each in drawn)
    repaired = [solver.fix(each, order) for each in drawn[:20]]
    assert not any(any(violations(graph, each, 8)) for each in repaired)
