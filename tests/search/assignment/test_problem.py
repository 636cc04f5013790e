"""Cost and memory of an assignment, and the input that it refuses."""

import math

import pytest

from meshwright.errors import AssignmentError
from meshwright.search.assignment import Assignment
from tests.search.assignment.oracle import chain

TWO = [[1.0, 2.0], [3.0, 4.0, 5.0]]
TABLE = [[0, 1, 2], [3, 4, 5]]


def test_a_cost_is_the_sum_over_nodes_and_edges_first_node_major():
    problem = Assignment.of(TWO, [(0, 1, TABLE), (1, 0, [0, 10, 20, 30, 40, 50])])
    assert problem.cost([1, 2]) == 2 + 5 + 5 + 50


def test_lives_are_half_open_and_may_be_empty():
    problem = Assignment.of(
        [[0], [0], [0]], usages=[[5], [7], [100]], lives=[(0, 3), (3, 4), (2, 2)]
    )
    assert problem.peak([0, 0, 0]) == 7


def test_a_forbidden_pair_is_not_feasible():
    problem = Assignment.of([[0, 1], [0]], [(0, 1, [math.inf, 0])])
    assert not problem.is_feasible([0, 0])
    assert problem.is_feasible([1, 0])


def test_it_prints_as_one_line():
    assert str(chain(3, 2, 50)) == "assignment of 3 nodes, 4 edges, 6 choices, limit 50"


@pytest.mark.parametrize(
    ("costs", "edges", "options", "words"),
    [
        ([], [], {}, "at least one choice"),
        ([[1], []], [], {}, "at least one choice"),
        ([[1], [math.nan]], [], {}, "cost nan: give a number"),
        ([[1], [2]], [(0, 2, [1])], {}, "an edge names node 2 of 2"),
        (TWO, [(0, 1, [1, 2, 3])], {}, "has 3 costs, wanted 6"),
        (TWO, [], {"usages": [[1, 2], [1, 2]]}, "differ in length"),
        ([[1]], [], {"usages": [[-1]]}, "usage -1.0: give a number from 0 on"),
        ([[1]], [], {"usages": [[math.inf]]}, "forbid a choice by its cost"),
        ([[1]], [], {"lives": [(0, 1), (0, 1)]}, "lives of 2 nodes for 1"),
        ([[1]], [], {"limit": -1.0}, "usage limit -1.0"),
    ],
)
def test_malformed_input_is_refused_with_what_is_wanted(costs, edges, options, words):
    with pytest.raises(AssignmentError, match=words):
        Assignment.of(costs, edges, **options)


@pytest.mark.parametrize("choices", [[0], [0, 3], [-1, 0]])
def test_choices_that_do_not_exist_are_refused(choices):
    with pytest.raises(AssignmentError, match=r"choices"):
        Assignment.of(TWO).cost(choices)
