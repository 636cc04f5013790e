"""The contract of engines, tested on each of them."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from dataclasses import replace
from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.search import Budget, Engine, Problem, Sampling, search
from tests.search.engines import COMPLETE, ENGINES
from tests.search.toys import (
    SMALL,
    Clock,
    Order,
    Subset,
    Table,
    Trap,
    Watched,
    all_states,
    lowest_cost,
)

every_engine = pytest.mark.parametrize("make", ENGINES.values(), ids=ENGINES)
every_problem = pytest.mark.parametrize("toy", SMALL.values(), ids=SMALL)


@every_engine
@every_problem
def test_the_best_of_a_small_problem_is_found(make, toy):
    assert search(toy(), make(0), Budget(trials=5000)).cost == lowest_cost(toy())


@pytest.mark.parametrize("name", COMPLETE)
@every_problem
def test_complete_engines_say_when_every_state_was_seen(name, toy):
    result = search(toy(), ENGINES[name](0), Budget())
    assert result.is_complete
    assert result.stopped == "exhausted"
    assert result.evaluations == len(list(all_states(toy())))


@every_engine
@every_problem
def test_a_result_is_consistent_with_its_actions(make, toy):
    problem = Watched(toy())
    result = search(problem, make(1), Budget(evaluations=25))
    end = reduce(problem.apply, result.actions, problem.start())
    assert problem.key(end) == problem.key(result.state)
    assert result.evaluations == problem.num_costs <= 25
    assert result.cost == problem.cost(result.state)
    assert result.evaluations <= result.trials


@every_engine
@every_problem
def test_improvements_only_improve_and_end_with_the_result(make, toy):
    values = []
    result = search(
        toy(),
        make(2),
        Budget(trials=300),
        on_improvement=lambda found, state: values.append((found, toy().cost(state))),
    )
    assert [found for found, _ in values] == list(result.improvements)
    assert all(found.cost == cost for found, cost in values)
    for before, after in itertools.pairwise(result.improvements):
        assert after.cost < before.cost
        assert after.evaluation > before.evaluation
        assert after.trial > before.trial
        assert after.seconds >= before.seconds
    if result.improvements:
        assert result.improvements[-1].cost == result.cost


@every_engine
@pytest.mark.parametrize("limit", [1, 2, 17, 100])
def test_limits_on_evaluations_and_trials_are_met_exactly(make, limit):
    problem = Subset(12, seed=0)
    priced = search(problem, make(0), Budget(evaluations=limit))
    assert (priced.evaluations, priced.stopped) == (limit, "evaluations")
    tried = search(problem, make(0), Budget(trials=limit))
    assert (tried.trials, tried.stopped) == (limit, "trials")


@every_engine
@pytest.mark.parametrize("where", ["on_cost", "on_apply"])
@pytest.mark.parametrize("seconds", [50, 200])
def test_a_limit_in_seconds_is_kept_within_ten_percent(make, where, seconds):
    clock = Clock()
    wait = {where: lambda number: clock.wait(1 / 8 if where == "on_apply" else 1)}
    problem = Watched(Order(9, seed=0), **wait)
    result = search(problem, make(0), Budget(seconds=seconds, clock=clock))
    assert result.stopped == "seconds"
    assert 0.9 * seconds <= result.seconds <= 1.1 * seconds
    assert result.seconds == clock.now


@every_engine
def test_with_long_trials_the_search_ends_nearest_to_its_limit(make):
    clock = Clock()
    problem = Watched(Subset(12, seed=0), on_cost=lambda number: clock.wait(30))
    search(problem, make(0), Budget(seconds=100, clock=clock))
    assert clock.now == 90


@every_engine
def test_a_start_that_takes_all_the_time_ends_the_search(make):
    clock = Clock()
    problem = Watched(Subset(8, seed=0), on_cost=lambda number: clock.wait(100))
    result = search(problem, make(0), Budget(seconds=50, clock=clock))
    assert (result.evaluations, result.actions) == (1, ())


@every_engine
def test_same_seed_same_result_however_long_it_takes(make):
    problem, clock = Subset(12, seed=3), Clock()
    slow = Watched(problem, on_cost=lambda number: clock.wait(number % 7))
    quick = search(problem, make(5), Budget(evaluations=200, clock=Clock()))
    again = search(problem, make(5), Budget(evaluations=200, clock=Clock()))
    late = search(slow, make(5), Budget(evaluations=200, clock=clock))
    assert quick == again
    assert (late.state, late.actions, late.trials) == (
        quick.state,
        quick.actions,
        quick.trials,
    )


@every_engine
def test_a_longer_search_begins_as_a_shorter_one(make):
    problem, clock = Trap(4), Clock()
    short = search(problem, make(4), Budget(evaluations=60, clock=clock))
    long = search(problem, make(4), Budget(evaluations=240, clock=clock))
    assert long.improvements[: len(short.improvements)] == short.improvements


@every_engine
def test_the_unit_of_cost_does_not_matter(make):
    problem = Order(7, seed=2)
    dear = Watched(problem)
    dear.cost = lambda state: 1024 * problem.cost(state)
    cheap = search(problem, make(1), Budget(evaluations=150))
    assert search(dear, make(1), Budget(evaluations=150)).actions == cheap.actions


def plans() -> str:
    """What every engine finds, as text."""
    lines = []
    for name, make in ENGINES.items():
        result = search(Subset(12, 1), make(7), Budget(evaluations=150))
        lines.append(f"{name} {result.cost} {result.actions} {result.trials}\n")
    return "".join(lines)


def test_same_seed_same_plan_for_any_hash_seed():
    there = subprocess.run(
        [sys.executable, "-c", f"import {__name__} as t; print(t.plans(), end='')"],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        check=True,
        text=True,
    )
    assert there.stdout == plans()


@every_engine
def test_without_a_feasible_state_the_result_is_the_start(make):
    problem = Table((math.inf,) * 3, ((1, 2), (2,), ()))
    result = search(problem, make(0), Budget(trials=200))
    assert (result.state, result.cost, result.actions) == (0, math.inf, ())
    assert not result.is_feasible
    assert result.improvements == ()


@every_engine
def test_without_actions_the_start_is_best(make):
    result = search(Table((3.0,), ((),)), make(0), Budget())
    assert (result.state, result.cost, result.actions) == (0, 3.0, ())
    assert result.stopped in ("exhausted", "stalled")


@every_engine
@pytest.mark.parametrize("where", ["on_cost", "on_apply"])
@pytest.mark.parametrize("number", [1, 2, 20])
def test_ctrl_c_returns_the_best_so_far(make, where, number):
    def press(call: int) -> None:
        if call == number:
            raise KeyboardInterrupt

    priced = []
    problem = Watched(Subset(10, seed=1), **{where: press})
    cost_fn = problem.cost
    problem.cost = lambda state: priced.append(cost_fn(state)) or priced[-1]
    result = search(problem, make(0), Budget(evaluations=500))
    assert result.stopped == "interrupted"
    assert not result.is_complete
    assert result.cost == min(priced, default=math.inf)
    assert result.evaluations == len(priced)


@every_engine
def test_a_search_without_new_states_ends_by_patience(make):
    result = search(Table((2.0, 1.0), ((1,), (0,))), make(0), Budget())
    assert (result.cost, result.evaluations) == (1.0, 2)
    assert result.stopped in ("exhausted", "stalled")


def test_only_known_candidates_in_a_row_count_against_patience():
    engine = Sampling(0, patience=30)
    result = search(Subset(14, seed=0), engine, Budget(trials=1000))
    assert result.trials - result.evaluations > 100
    assert result.stopped == "trials"


@every_engine
def test_a_prior_excludes_no_action(make):
    problem = Trap(2)
    against = replace(
        make(0), prior_fn=lambda state, actions: [float(a > 2) for a in actions]
    )
    assert search(problem, against, Budget(trials=5000)).cost == lowest_cost(problem)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Graphs of up to five states, rings among them, some of which are unusable."""
    size = draw(st.integers(1, 5))
    costs = st.sampled_from([0.0, 1.0, 2.0, 3.0, -4.0, math.inf])
    steps = st.lists(st.integers(0, size - 1), max_size=2).map(tuple)
    return Table(
        tuple(draw(st.lists(costs, min_size=size, max_size=size))),
        tuple(draw(st.lists(steps, min_size=size, max_size=size))),
    )


@settings(max_examples=60)
@given(tables(), st.integers(0, 3))
def test_no_engine_beats_enumeration_and_complete_ones_equal_it(table, seed):
    lowest = lowest_cost(table)
    for make in ENGINES.values():
        assert search(table, make(seed), Budget(trials=3)).cost >= lowest
        result = search(table, make(seed), Budget(trials=800))
        assert result.cost == lowest
        if result.is_complete:
            assert result.evaluations == len(list(all_states(table)))


def _found(problem: Problem, engine: Engine) -> float:
    return search(problem, engine, Budget(evaluations=400)).cost


class Holes(Subset):
    """A third of the states cannot be used."""

    def cost(self, state: frozenset[int]) -> float:
        return math.inf if sum(state) % 3 == 1 else super().cost(state)


@pytest.mark.parametrize("name", ["annealing", "evolution", "mcts"])
@pytest.mark.parametrize(
    "problem",
    [Subset(24, seed=1), Order(10, seed=4), Holes(24, seed=1)],
    ids=["subset", "order", "holes"],
)
def test_engines_that_learn_beat_random_sampling(name, problem):
    seeds = range(5)
    learned = sum(_found(problem, ENGINES[name](seed)) for seed in seeds)
    drawn = sum(_found(problem, ENGINES["sampling"](seed)) for seed in seeds)
    assert learned < drawn
