"""Dives at prices of memory: valid bounds, and solutions that fit."""

import math

from hypothesis import given, settings

from meshwright.search.assignment.bounds.message_passing import Messages
from meshwright.search.assignment.incumbent.incumbent import Incumbent
from meshwright.search.assignment.incumbent.solution import Clock, SolveOptions
from meshwright.search.assignment.presolve.presolve import merge
from meshwright.search.assignment.primal.priced_dives import PricedDives
from meshwright.search.assignment.problem.reduced_problem import finite_graph
from meshwright.search.work import WorkMeter
from tests.search.assignment.oracle import chain, least, problems


def dives_of(problem):
    clock = Clock(0.0, 600.0, WorkMeter())
    incumbent = Incumbent(*merge(problem), clock, SolveOptions(), None)
    graph = finite_graph(incumbent.reduced)
    messages = Messages(graph, incumbent.reduced.costs)
    return incumbent, PricedDives(incumbent, messages)


@settings(deadline=None, max_examples=60)
@given(problems(limited=True))
def test_bounds_of_dives_are_never_above_the_optimum(problem):
    best = least(problem)
    if best == math.inf:
        return
    incumbent, dives = dives_of(problem)
    if not incumbent.memory.num_rows:
        return
    for _ in range(8):
        dives.step()
        assert incumbent.bound <= best + 1e-6
        assert incumbent.cost >= best - 1e-6


def test_a_dozen_dives_fit_into_memory_that_the_first_exceeds():
    problem = chain(400, 10, 330.0)
    incumbent, dives = dives_of(problem)
    dives.step()
    assert incumbent.memory.left(dives.choices).min() < 0
    first_bound = incumbent.bound
    for _ in range(11):
        dives.step()
    assert problem.is_feasible(incumbent.lifted())
    assert incumbent.bound > first_bound
    assert (dives.row_prices > 0).sum() < incumbent.memory.num_rows
