"""Sequences of goals."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import reduce

import pytest

from meshwright.search import (
    Annealing,
    Budget,
    Evolution,
    Goal,
    Mcts,
    Sampling,
    search,
    search_goals,
)
from tests.search.engines import ENGINES
from tests.search.toys import Clock, Subset, Table, Watched

NUM = 8
State = frozenset[tuple[str, int, int]]


@dataclass(frozen=True)
class Steps:
    """Layers that can each be cut in three ways for time, then in three for memory.

    One way is right, and the same in all layers. A cut for memory saves it only where
    the layer was cut rightly for time, and takes time.
    """

    def start(self) -> State:
        return frozenset()

    def actions(self, state: State):
        decided = {(kind, layer) for kind, layer, _ in state}
        cuts = itertools.product(("time", "memory"), range(NUM), range(3))
        return [cut for cut in cuts if cut[:2] not in decided]

    def apply(self, state: State, action) -> State:
        return state | {action}

    def cost(self, state: State) -> float:
        return seconds(state) + memory(state)

    def key(self, state: State):
        return state


def seconds(state: State) -> float:
    right = sum(kind == "time" and way == 1 for kind, _, way in state)
    return 2 * NUM - right + 0.5 * sum(kind == "memory" for kind, _, _ in state)


def memory(state: State) -> float:
    return NUM - sum(
        ("time", layer, 1) in state
        for kind, layer, way in state
        if kind == "memory" and way == 2
    )


def of_kind(kind):
    return lambda state, actions: [a for a in actions if a[0] == kind]


GOALS = (
    Goal("time", seconds, of_kind("time")),
    Goal("memory", memory, of_kind("memory")),
)


def test_goals_in_sequence_find_a_state_that_one_objective_misses():
    budget, best = Budget(evaluations=200), 2 * NUM - NUM + 0.5 * NUM
    problem, seeds = Steps(), range(8)
    one_by_one = [search_goals(problem, GOALS, Mcts(s), budget)[-1] for s in seeds]
    at_once = [search(problem, Mcts(seed), budget) for seed in seeds]
    assert sum(problem.cost(result.state) == best for result in one_by_one) >= 4
    assert all(result.cost > best for result in at_once)


@pytest.mark.parametrize("make", ENGINES.values(), ids=ENGINES)
def test_actions_count_from_the_start_and_no_goal_loses_by_its_own(make):
    problem = Subset(6, seed=2)
    goals = (
        Goal("even", problem.cost, lambda s, actions: [a for a in actions if a % 2]),
        Goal("few", len),
        Goal("all", problem.cost),
    )
    results = search_goals(problem, goals, make(0), Budget(evaluations=90))
    assert len(results) == 3
    begin = problem.start()
    for goal, result in zip(goals, results, strict=True):
        state = reduce(problem.apply, result.actions, problem.start())
        assert state == result.state
        assert result.cost == goal.cost_fn(state) <= goal.cost_fn(begin)
        begin = state
    assert results[1].state == results[0].state


def test_shares_are_kept_and_unused_budget_goes_to_the_next_goal():
    problem = Subset(40, seed=0)
    quick = Goal("one", problem.cost, lambda state, actions: actions[:0])
    slow = Goal("all", problem.cost)
    large = Goal("large", problem.cost, share=3)
    one, two, three = search_goals(
        problem, (quick, slow, large), Mcts(0), Budget(evaluations=401)
    )
    assert one.evaluations == 1
    assert (two.evaluations, three.evaluations) == (100, 300)


def test_seconds_are_shared_too():
    clock = Clock()
    problem = Watched(Subset(12, seed=0))
    goals = [
        Goal(str(i), lambda state: clock.wait(1) or problem.cost(state))
        for i in range(3)
    ]
    budget = Budget(seconds=90, clock=clock)
    results = search_goals(problem, goals, Annealing(0), budget)
    assert all(29 <= result.seconds <= 31 for result in results)


def test_ctrl_c_ends_the_sequence():
    def press(state) -> float:
        raise KeyboardInterrupt

    problem = Subset(6, seed=0)
    goals = (Goal("a", problem.cost), Goal("b", press), Goal("c", problem.cost))
    results = search_goals(problem, goals, Evolution(0), Budget(trials=90))
    assert [result.stopped for result in results] == ["trials", "interrupted"]
    assert results[1].state == results[0].state
    assert results[1].actions == results[0].actions


def test_no_goals_no_results():
    assert search_goals(Table((1.0,), ((),)), (), Sampling(0), Budget()) == ()
