"""The solver compared to enumeration, CP-SAT, HiGHS, its budget and itself."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.assignment.plain_solvers import solve_cp_sat, solve_highs
from meshwright.errors import AssignmentError
from meshwright.search.assignment import Assignment, SolveOptions, solve
from meshwright.search.assignment.bounds.message_passing import Messages
from meshwright.search.assignment.eliminate.buckets import optimise_in_order
from meshwright.search.assignment.eliminate.order import plan_elimination
from meshwright.search.assignment.presolve.presolve import merge
from meshwright.search.assignment.problem.reduced_problem import finite_graph
from meshwright.search.work import WorkMeter
from tests.search.assignment.oracle import chain, least, problems

LONG_S = 600.0
"""Seconds after which a test fails; every solve here ends by itself, mostly at once."""

INFEASIBLE = Assignment.of(
    [[0, 1], [0]], usages=[[4, 3], [5]], lives=[(0, 2), (1, 3)], limit=7
)


@settings(deadline=None, max_examples=150)
@given(problems())
def test_small_problems_are_solved_as_by_enumeration(problem):
    best = least(problem)
    if best == math.inf:
        with pytest.raises(AssignmentError, match=r"no solution|no feasible"):
            solve(problem, LONG_S)
        return
    found = solve(problem, LONG_S)
    assert problem.is_feasible(found.choices)
    assert found.bound <= best == found.cost == problem.cost(found.choices)
    assert found.is_optimal


@settings(deadline=None, max_examples=60)
@given(problems(), st.integers(0, 99), st.integers(1, 9))
def test_negative_and_fractional_costs_are_solved_as_well(problem, seed, rounds):
    more = np.random.default_rng(seed).normal(0, 3, len(problem.costs))
    problem = replace(problem, costs=problem.costs - 8 + more)
    best = least(problem)
    if best == math.inf:
        return
    by_time, by_rounds = (
        solve(problem, LONG_S),
        solve(problem, LONG_S, options=SolveOptions(rounds=rounds)),
    )
    assert by_time.cost == pytest.approx(best, abs=1e-7)
    assert problem.is_feasible(by_rounds.choices)
    for found in (by_time, by_rounds):
        assert found.bound <= best + 1e-7
        assert best <= found.cost + 1e-7


@settings(deadline=None, max_examples=60)
@given(problems(), problems(), st.integers(1, 9))
def test_round_limits_and_messages_of_another_problem_keep_the_result_valid(
    one, other, rounds
):
    """From any start, the solution is feasible and the bound is at most the optimum."""
    best = least(one)
    if math.inf in (best, least(other)):
        return
    messages = solve(other, LONG_S, options=SolveOptions(rounds=rounds)).messages
    found = solve(one, LONG_S, options=SolveOptions(rounds=rounds, messages=messages))
    assert one.is_feasible(found.choices)
    assert found.bound <= best <= found.cost == one.cost(found.choices)


@pytest.mark.parametrize("seed", range(4))
def test_messages_from_other_costs_give_a_good_bound_at_once(seed):
    first = chain(60, 6, seed=seed)
    more = np.random.default_rng(seed).uniform(0, 5, len(first.costs))
    second = replace(first, costs=first.costs + more)
    messages = solve(first, LONG_S, options=SolveOptions(rounds=60)).messages
    reduced, _ = merge(second)
    graph = finite_graph(reduced)
    silent, warm = (
        Messages(graph, reduced.costs, known).sweep(1) for known in (None, messages)
    )
    assert silent < warm <= solve(second, LONG_S).cost * (1 + 1e-9)


@settings(deadline=None, max_examples=25)
@given(problems())
def test_highs_and_cp_sat_agree_with_enumeration(problem):
    best = least(problem)
    for choices, bound in (solve_cp_sat(problem, 10), solve_highs(problem, 10)):
        if best == math.inf:
            assert choices is None
            assert bound == math.inf
        else:
            assert choices is not None
            assert problem.is_feasible(choices)
            assert problem.cost(choices) == best
            assert bound == pytest.approx(best)


@settings(deadline=None, max_examples=60)
@given(problems(limited=False, tree=True))
def test_elimination_solves_trees(problem):
    best = least(problem)
    if best == math.inf:
        return
    reduced, _ = merge(problem)
    graph = finite_graph(reduced)
    plan = plan_elimination(graph, 22.0)
    assert len(plan.order) == reduced.num_nodes
    choices = np.zeros(reduced.num_nodes, np.int64)
    optimise_in_order(graph, reduced.costs, plan, choices)
    assert problem.cost(reduced.lift(choices)) == best


def test_elimination_keeps_nodes_of_a_clique_fixed():
    rng = np.random.default_rng(0)
    edges = [(a, b, rng.random((4, 4))) for b in range(14) for a in range(b)]
    reduced, _ = merge(Assignment.of(rng.random((14, 4)).tolist(), edges))
    plan = plan_elimination(finite_graph(reduced), 22.0)
    assert (plan.rank == 14).sum() == 14 - 11  # eleven nodes of four choices: 2**22


@pytest.mark.parametrize("limit", [None, 700.0])
def test_a_hundred_nodes_are_proven_optimal_within_a_second_or_two(limit):
    problem = chain(100, 12, limit)
    found = solve(problem, LONG_S, meter=WorkMeter())
    assert found.is_optimal
    assert found.seconds < 2


def test_the_same_seed_gives_the_same_choices():
    problem = chain(40, 5, 700.0)
    first, again = (solve(problem, LONG_S, seed=3).choices for _ in range(2))
    assert np.array_equal(first, again)


def test_costs_need_not_be_whole_nor_large():
    rng = np.random.default_rng(1)
    tables = [(i, i + 1, 1e-6 * rng.random((3, 3))) for i in range(4)]
    problem = Assignment.of((1e-6 * rng.random((5, 3))).tolist(), tables)
    found = solve(problem, LONG_S)
    assert found.is_optimal
    assert found.cost == pytest.approx(least(problem), rel=1e-9)


class Reads:
    """A meter by which each look at it takes two milliseconds, and nothing else."""

    def __init__(self):
        self.now_s = 0.0

    def read(self):
        self.now_s += 2e-3
        return self.now_s

    def count(self, work, units=1.0):
        pass


def test_the_budget_is_kept_within_a_tenth_and_progress_only_improves():
    hard, reports, meter = chain(400, 10, 330.0), [], Reads()
    found = solve(hard, 4.0, on_progress=reports.append, meter=meter)
    assert 4.0 <= meter.now_s < 4.4
    assert found.bound <= found.cost
    assert hard.is_feasible(found.choices)
    costs = [report.cost for report in reports]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == found.cost


def test_an_infeasible_limit_says_by_how_much():
    with pytest.raises(
        AssignmentError, match="at least 1 more than the usage limit of 7"
    ):
        solve(INFEASIBLE, 5.0)


def test_a_budget_is_positive():
    with pytest.raises(AssignmentError, match="give a positive one"):
        solve(INFEASIBLE, 0.0)


@given(problems(), st.integers(0, 9))
def test_the_result_costs_no_more_than_a_feasible_start(problem, seed):
    every = itertools.product(*map(range, np.diff(problem.starts)))
    feasible = [x for x in every if problem.is_feasible(x)]
    if not feasible:
        return
    start = feasible[seed * 7 % len(feasible)]
    found = solve(problem, LONG_S, options=SolveOptions(gap=1.0, start=start, rounds=1))
    assert found.cost <= problem.cost(start)
    assert found.bound <= found.cost


@given(problems())
def test_a_limit_on_rounds_makes_the_result_reproducible(problem):
    if least(problem) == math.inf:
        return
    one, two = (
        solve(problem, LONG_S, seed=3, options=SolveOptions(rounds=5)) for _ in range(2)
    )
    assert one.choices.tolist() == two.choices.tolist()
    assert (one.cost, one.bound) == (two.cost, two.bound)


def test_a_solve_ends_at_its_stop_bound():
    problem = chain(60, 4)
    best = solve(problem, LONG_S).cost
    found = solve(
        problem, LONG_S, options=SolveOptions(stop_bound=0.5 * best, rounds=100)
    )
    assert 0.5 * best <= found.bound <= best
