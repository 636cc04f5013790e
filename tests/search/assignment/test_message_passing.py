"""Message passing: monotone bounds, and min-marginals of each choice."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from meshwright.errors import AssignmentError
from meshwright.search.assignment import Assignment
from meshwright.search.assignment.bounds.message_passing import Messages
from meshwright.search.assignment.presolve.presolve import merge
from meshwright.search.assignment.problem.reduced_problem import finite_graph
from tests.search.assignment.oracle import chain, least, problems


def messages_of(problem):
    try:
        reduced, _ = merge(problem)
    except AssignmentError:
        assume(False)
    return reduced, Messages(finite_graph(reduced), reduced.costs)


@settings(deadline=None, max_examples=100)
@given(problems(limited=False))
def test_the_bound_never_falls_and_is_never_above_the_optimum(problem):
    best = least(problem)
    assume(best < math.inf)
    _, messages = messages_of(problem)
    before = -math.inf
    for _ in range(6):
        bound = messages.sweep(1)
        assert before <= bound <= best + 1e-6
        before = bound


@settings(deadline=None, max_examples=60)
@given(problems(limited=False), st.integers(0, 99))
def test_from_any_messages_the_bound_is_valid(problem, seed):
    reduced, known = messages_of(problem)
    rng = np.random.default_rng(seed)
    values = rng.uniform(-5, 5, len(known.arrays.values))
    costs = reduced.costs + rng.uniform(-1, 1, len(reduced.costs))
    messages = Messages(known.graph, costs, values)
    bound = messages.sweep(2)
    _, excess = messages.decode()
    change = costs - reduced.costs
    for x in itertools.product(*map(range, reduced.widths)):
        at = reduced.graph.starts[:-1] + np.array(x, np.int64)
        cost = reduced.cost(np.array(x, np.int64)) + change[at].sum()
        assert cost >= bound + excess[at].max(initial=0.0) - 1e-6


@settings(deadline=None, max_examples=100)
@given(problems(limited=False))
def test_no_solution_costs_less_than_the_bound_plus_the_excess_of_its_choices(problem):
    reduced, messages = messages_of(problem)
    bound = messages.sweep(3)
    choices, excess = messages.decode()
    assert reduced.cost(choices) >= bound - 1e-6
    for x in itertools.product(*map(range, reduced.widths)):
        chosen = excess[reduced.graph.starts[:-1] + np.array(x, np.int64)]
        most = chosen.max(initial=0.0)
        assert reduced.cost(np.array(x, np.int64)) >= bound + most - 1e-6


def test_on_a_chain_one_sweep_is_exact():
    rng = np.random.default_rng(0)
    costs = rng.uniform(0, 1, (40, 5)).tolist()
    tables = rng.uniform(0, 1, (39, 5, 5))
    problem = Assignment.of(costs, [(i, i + 1, t) for i, t in enumerate(tables)])
    reduced, messages = messages_of(problem)
    bound = messages.sweep(1)
    choices, _ = messages.decode()
    assert reduced.cost(choices) == pytest.approx(bound, rel=1e-12)


def test_the_multipliers_of_copies_sum_to_zero():
    reduced, messages = messages_of(chain(12, 4))
    messages.sweep(4)
    graph = messages.graph
    shares = messages.split(np.ones((len(graph.ends), 2), np.bool_))
    nodes = graph.ends.ravel()
    at = 0
    sums = np.zeros(len(reduced.costs))
    for node in nodes:
        width = reduced.widths[node]
        first = reduced.graph.starts[node]
        sums[first : first + width] += shares[at : at + width]
        at += width
    assert at == len(shares)
    np.testing.assert_allclose(sums, 0, atol=1e-9)
