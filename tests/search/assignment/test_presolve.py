"""Presolve keeps the optimum with fewer nodes; bounds are never above it."""

import itertools
import math

import numpy as np
from hypothesis import given, settings

from meshwright.errors import AssignmentError
from meshwright.search.assignment import Assignment, Clock, SolveOptions
from meshwright.search.assignment.bounds.dual import DualBound, ascend
from meshwright.search.assignment.bounds.message_passing import Messages
from meshwright.search.assignment.eliminate.order import plan_elimination
from meshwright.search.assignment.incumbent.incumbent import Incumbent
from meshwright.search.assignment.presolve.merge import merge_followers
from meshwright.search.assignment.presolve.presolve import merge, presolve
from meshwright.search.assignment.problem.reduced_problem import (
    ReducedProblem,
    finite_graph,
)
from meshwright.search.work import WorkMeter
from tests.search.assignment.oracle import chain, least, problems


@settings(deadline=None, max_examples=150)
@given(problems())
def test_presolve_keeps_the_optimum(problem):
    try:
        reduced, memory = presolve(problem, merge(problem)[0])
    except AssignmentError:
        assert least(problem) == math.inf
        return
    best = math.inf
    for x in itertools.product(*map(range, reduced.widths)):
        choices = np.array(x)
        if memory.left(choices).min(initial=0.0) >= 0:
            best = min(best, reduced.cost(choices))
            fits = problem.is_feasible(reduced.lift(choices))
            assert fits == (reduced.cost(choices) < math.inf)
    assert best == least(problem)


@settings(deadline=None, max_examples=150)
@given(problems(limited=False))
def test_merging_followers_keeps_every_cost(problem):
    reduced = merge_followers(ReducedProblem.whole(problem))
    if reduced is None:
        assert least(problem) == math.inf
        return
    found = [
        (reduced.cost(np.array(x)), problem.cost(reduced.lift(np.array(x))))
        for x in itertools.product(*map(range, reduced.widths))
    ]
    assert all(mine == theirs for mine, theirs in found)
    assert min(mine for mine, _ in found) == least(problem)


def test_a_chain_of_followers_becomes_one_node():
    same = np.where(np.eye(4, dtype=bool), 0, np.inf)
    costs = np.arange(400.0).reshape(100, 4).tolist()
    problem = Assignment.of(costs, [(i, i + 1, same) for i in range(99)])
    reduced, _ = presolve(problem, merge(problem)[0])
    assert reduced.num_nodes == 1
    assert problem.cost(reduced.lift(np.zeros(1, np.int64))) == sum(c[0] for c in costs)


def pool_of(problem):
    reduced, memory = presolve(problem, merge(problem)[0])
    clock = Clock(0.0, 600.0, WorkMeter())
    return Incumbent(reduced, memory, clock, SolveOptions(), None), finite_graph(
        reduced
    )


@settings(deadline=None, max_examples=60)
@given(problems())
def test_a_bound_is_never_above_the_optimum(problem):
    best = least(problem)
    if best == math.inf:
        return
    incumbent, graph = pool_of(problem)
    for sweeps, log_cap in ((0, 0.0), (5, 3.0), (5, 20.0)):  # small tables: split
        messages = Messages(graph, incumbent.reduced.costs)
        messages.sweep(sweeps)
        dual = DualBound(incumbent, plan_elimination(graph, log_cap), messages)
        ascend(dual, 30)
        assert dual.best <= best + 1e-6


def test_splitting_nodes_loses_little_on_a_chain_with_shortcuts():
    problem = chain(30, 4)
    incumbent, graph = pool_of(problem)
    silent = Messages(graph, incumbent.reduced.costs)
    exact = DualBound(incumbent, plan_elimination(graph, 20.0), silent)
    assert exact.num_kept == 0
    optimum = exact.evaluate()
    split = DualBound(incumbent, plan_elimination(graph, 4.0), silent)
    assert split.num_kept > 0
    incumbent.cost = optimum * 1.01  # a target to step towards
    ascend(split, 300)
    assert 0.9 * optimum < split.best <= optimum * (1 + 1e-9)


def test_a_restricted_search_keeps_the_best_solution_outside_of_it():
    """There, a solution of equal cost is no improvement; one of less cost is taken."""
    problem = Assignment.of([[1.0, 2.0, 0.5]], [])
    reduced, memory = merge(problem)
    incumbent = Incumbent(
        reduced, memory, Clock(0.0, 600.0, WorkMeter()), SolveOptions(), None
    )
    incumbent.begin_from(np.array([0]))
    without = merge_followers(reduced, np.array([False, True, True]))
    restricted = incumbent.restricted(without, memory)
    assert restricted.cost == 1.0
    assert restricted.choices is None
    assert list(restricted.lifted()) == [0]
    assert not restricted.offer(np.array([0]))
    assert restricted.offer(np.array([1]))
    assert list(restricted.lifted()) == [2]


def test_a_bound_that_says_nothing_leaves_a_problem_of_whole_costs_as_it_is():
    """HiGHS has no bound if the time is up before its first relaxation is solved."""
    incumbent, _ = pool_of(chain(5, 3))
    incumbent.raise_bound(-math.inf)
    assert incumbent.bound == -math.inf
