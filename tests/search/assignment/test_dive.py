"""Diving: nodes are assigned in steps, with message passing in between."""

import math

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from meshwright.search.assignment import Assignment
from meshwright.search.assignment.bounds.message_passing import Messages
from meshwright.search.assignment.presolve.presolve import merge
from meshwright.search.assignment.primal.dive import dive
from meshwright.search.assignment.problem.reduced_problem import finite_graph
from tests.search.assignment.oracle import least, problems

SWEEPS = 20


def dived(problem, steps=300, is_late=lambda share: False):
    """The reduced problem, its messages, and the choices of a dive."""
    reduced, _ = merge(problem)
    messages = Messages(finite_graph(reduced), reduced.costs)
    messages.sweep(SWEEPS)
    return reduced, messages, dive(messages, steps, reduced.penalty, is_late)


def colouring(num_nodes, num_edges, num_colours, seed):
    """A random graph colouring problem whose colours have nearly equal costs."""
    rng = np.random.default_rng(seed)
    unlike = np.where(np.eye(num_colours, dtype=bool), math.inf, 0.0)
    pairs = {
        tuple(sorted(rng.choice(num_nodes, 2, replace=False))) for _ in range(num_edges)
    }
    costs = rng.uniform(0, 0.01, (num_nodes, num_colours))
    edges = [(int(a), int(b), unlike) for a, b in sorted(pairs)]
    return Assignment.of(costs.tolist(), edges)


@settings(deadline=None, max_examples=60)
@given(problems(limited=False), st.integers(1, 20), st.booleans())
def test_every_node_gets_one_of_its_choices(problem, steps, late):
    assume(least(problem) < math.inf)
    reduced, messages, choices = dived(problem, steps, lambda share: late)
    assert np.all((choices >= 0) & (choices < reduced.widths))
    assert reduced.cost(choices) >= messages.bound - 1e-6


def grid(side, seed):
    """A grid with random edge costs, and node costs that are nearly equal."""
    rng = np.random.default_rng(seed)
    ends = [(i, i + 1) for i in range(side * side) if (i + 1) % side]
    ends += [(i, i + side) for i in range(side * (side - 1))]
    edges = [
        (a, b, rng.uniform(0.5, 1.5) * rng.integers(0, 2, (4, 4)).astype(float))
        for a, b in ends
    ]
    costs = rng.uniform(0, 0.1, (side * side, 4))
    return Assignment.of(costs.tolist(), edges)


def test_assigning_a_few_nodes_of_largest_margin_at_a_time_is_best():
    """Compared to a greedy forward pass, and to assigning all nodes at once."""
    in_order, at_once, surest = 0.0, 0.0, 0.0
    for seed in range(10):
        problem = grid(12, seed)
        reduced, messages, choices = dived(problem)
        surest += reduced.cost(choices)
        in_order += reduced.cost(messages.decode()[0])
        at_once += reduced.cost(dived(problem, steps=1)[2])
    assert surest < 0.85 * in_order
    assert surest < 0.92 * at_once


def test_nodes_around_forbidden_pairs_are_assigned_once_more(monkeypatch):
    """Some graphs are coloured only with this repair."""
    numbers = range(12)
    problems = [colouring(100, 180, 3, seed) for seed in numbers]
    with_repair = sum(is_allowed(problem) for problem in problems)
    monkeypatch.setattr("meshwright.search.assignment.primal.dive._RADII", ())
    assert sum(is_allowed(problem) for problem in problems) < with_repair


def is_allowed(problem):
    reduced, _, choices = dived(problem)
    return reduced.cost(choices) < math.inf
