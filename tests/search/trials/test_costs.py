"""Fronts, ranks, crowding and hypervolume, against their definitions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import SearchError
from meshwright.search.trials import (
    Front,
    Goals,
    Request,
    Trial,
    TrialOutcome,
    crowding,
    dominates,
    front_of,
    hypervolume,
    pareto_ranks,
)

points = st.integers(1, 4).flatmap(
    lambda dims: st.lists(
        st.tuples(*[st.integers(0, 4)] * dims), min_size=1, max_size=9
    ).map(lambda rows: np.array(rows, np.float64))
)


@given(points)
@settings(max_examples=150)
def test_hypervolume_is_the_number_of_dominated_cells(costs):
    dims = costs.shape[1]
    cells = itertools.product(range(5), repeat=dims)
    covered = sum(bool((costs <= np.array(cell)).all(axis=1).any()) for cell in cells)
    assert hypervolume(costs, np.full(dims, 5.0)) == covered


@given(points, st.data())
@settings(max_examples=150)
def test_ranks_and_fronts_are_those_of_the_definition(costs, data):
    size = len(costs)
    levels = st.lists(
        st.sampled_from([0.0, 0.0, 1.0, 2.0]), min_size=size, max_size=size
    )
    violations = np.array(data.draw(levels))

    def above(i, j):
        if violations[i] != violations[j]:
            return violations[i] < violations[j]
        return (costs[i] <= costs[j]).all() and (costs[i] < costs[j]).any()

    matrix = dominates(costs, violations, costs, violations)
    pairs = itertools.product(range(size), repeat=2)
    assert all(matrix[i, j] == above(i, j) for i, j in pairs)
    left, rank, ranks = set(range(size)), 0, pareto_ranks(costs, violations)
    while left:
        front = {j for j in left if not any(above(i, j) for i in left)}
        assert all(ranks[j] == rank for j in front)
        left, rank = left - front, rank + 1
    best = {
        tuple(costs[j]) for j in range(size) if ranks[j] == 0 and violations[j] == 0
    }
    found = [tuple(costs[j]) for j in front_of(costs, violations)]
    assert set(found) == best
    assert len(found) == len(best)


def test_crowding_is_infinite_at_the_ends_and_adds_up_sides_of_boxes():
    costs = np.array([(0, 10), (1, 6), (4, 4), (10, 0)], np.float64)
    expected = [np.inf, 4 / 10 + 6 / 10, 9 / 10 + 6 / 10, np.inf]
    assert np.allclose(crowding(costs), expected)


def _front(*rows):
    goals = Goals({"accuracy": "max", "time": "min"}, {"bytes": (10, 100)})
    named = [dict(zip(("accuracy", "time", "bytes"), row, strict=True)) for row in rows]
    trials = [
        Trial.of(Request(i, {"i": i}), TrialOutcome(values), goals)
        for i, values in enumerate(named)
    ]
    return Front(goals, tuple(trials), "trials")


def test_a_front_answers_in_the_users_figures():
    front = _front(
        (0.9, 5, 50), (0.8, 2, 50), (0.7, 3, 50), (0.99, 1, 500), (0.5, 1, 5)
    )
    assert [point.number for point in front.points] == [0, 1]
    assert front.best().number == 0
    assert front.best(time=4).number == 1
    reference = {"accuracy": 0.5, "time": 6}
    assert front.hypervolume(reference) == pytest.approx(0.4 * 1 + 0.3 * 3)
    after = front.hypervolumes(reference, [1, 5])
    assert after == pytest.approx([0.4, front.hypervolume(reference)])
    with pytest.raises(SearchError, match=r"time <= 1 .the best is 2"):
        front.best(time=1)
    with pytest.raises(SearchError, match="did you mean 'time'"):
        front.best(tim=1)


def test_an_empty_front_says_which_constraint_excludes_most():
    front = _front((0.9, 5, 500), (0.8, 2, 400), (0.8, 2, 5))
    assert "2 of them failed for: bytes <= 100 (the nearest is 400)" in str(front)
    with pytest.raises(SearchError, match="bytes <= 100"):
        front.best()


@pytest.mark.parametrize(
    ("objectives", "constraints", "words"),
    [
        ({}, {}, "wanted a dict such as"),
        ({"a": "mim"}, {}, "did you mean 'min'"),
        ({"a": "min"}, {"b": (None, None)}, "its largest value"),
    ],
)
def test_goals_that_mean_nothing_are_refused(objectives, constraints, words):
    with pytest.raises(SearchError, match=words):
        Goals(objectives, constraints)
