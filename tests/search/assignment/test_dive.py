"""Dives: choices one after the other, each told before the next."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from meshwright.search.assignment import Assignment
from meshwright.search.assignment.dive import dive
from meshwright.search.assignment.graph import finite_graph
from meshwright.search.assignment.messages import Messages
from meshwright.search.assignment.presolve import merge
from tests.search.assignment.oracle import least, problems

SWEEPS = 20


def dived(problem, steps=300, is_late=lambda: False):
    """The kernel, messages, and what a dive comes to."""
    kernel, _ = merge(problem)
    messages = Messages(finite_graph(kernel, kernel.penalty), kernel.costs)
    messages.sweep(SWEEPS)
    return kernel, messages, dive(messages, steps, kernel.penalty, is_late)


def colouring(num_nodes, num_edges, num_colours, seed):
    """Neighbours take unlike colours, which are level but for a little."""
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
def test_every_node_gets_a_choice_that_it_has(problem, steps, late):
    assume(least(problem) < math.inf)
    kernel, messages, choices = dived(problem, steps, lambda: late)
    assert np.all((choices >= 0) & (choices < kernel.widths))
    assert kernel.cost(choices) >= messages.bound - 1e-6


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 30), st.integers(2, 6), st.integers(0, 99))
def test_on_a_tree_nothing_costs_less(num_nodes, num_choices, seed):
    rng = np.random.default_rng(seed)
    costs = rng.integers(0, 9, (num_nodes, num_choices)).astype(float)
    edges = [
        (int(rng.integers(i)), i, rng.integers(0, 9, (num_choices, num_choices)))
        for i in range(1, num_nodes)
    ]
    problem = Assignment.of(
        costs.tolist(), [(a, b, t.astype(float)) for a, b, t in edges]
    )
    kernel, messages, choices = dived(problem)
    assert kernel.cost(choices) == pytest.approx(messages.bound, rel=1e-9)


def test_what_is_level_is_decided_once():
    """On a grid each node has to go with its neighbours, in whichever of three ways."""
    side, rng = 8, np.random.default_rng(0)
    ways = [rng.permutation(np.eye(3)) for _ in range(side * side)]
    ends = [(i, i + 1) for i in range(side * side) if (i + 1) % side]
    ends += [(i, i + side) for i in range(side * (side - 1))]
    edges = [(a, b, 1.0 - ways[a] @ ways[b].T) for a, b in ends]
    kernel, _, choices = dived(Assignment.of([[0.0] * 3] * side**2, edges))
    assert kernel.cost(choices) == 0.0


def test_around_what_is_forbidden_choices_are_made_anew(monkeypatch):
    """Of graphs that can be coloured some are only so."""
    numbers = range(12)
    problems = [colouring(100, 180, 3, seed) for seed in numbers]
    anew = sum(is_allowed(problem) for problem in problems)
    monkeypatch.setattr("meshwright.search.assignment.dive._RINGS", ())
    assert sum(is_allowed(problem) for problem in problems) < anew


def is_allowed(problem):
    kernel, _, choices = dived(problem)
    return kernel.cost(choices) < math.inf
