"""Limits that a budget refuses, and the text of a result."""

from __future__ import annotations

import math

import pytest

from meshwright.errors import SearchError
from meshwright.search import (
    Annealing,
    Beam,
    Budget,
    Evolution,
    Exhaustive,
    Goal,
    Mcts,
    search,
)
from tests.search.toys import Clock, Subset, Table


@pytest.mark.parametrize("name", ["seconds", "evaluations", "trials"])
@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_zero_or_less_is_refused(name, limit):
    with pytest.raises(SearchError, match=f"{limit} {name} leaves nothing to do"):
        Budget(**{name: limit})


@pytest.mark.parametrize("cost", [math.nan, -math.inf])
def test_a_cost_that_is_not_a_number_is_refused(cost):
    with pytest.raises(SearchError, match="wanted a number"):
        search(Table((cost,), ((),)), Mcts(0), Budget())


@pytest.mark.parametrize(
    "make",
    [
        lambda: Annealing(0, hot=0.1, cold=0.2),
        lambda: Annealing(0, first_round=0),
        lambda: Beam(width=0),
        lambda: Evolution(0, population=1),
        lambda: Goal("time", abs, share=0),
        lambda: Mcts(0, widening=0),
        lambda: Mcts(0, greed=2),
        lambda: Mcts(0, num_draws=0),
    ],
)
def test_impossible_parameters_are_refused(make):
    with pytest.raises(SearchError):
        make()


def test_a_result_prints_in_a_line():
    result = search(Subset(3, seed=0), Exhaustive(), Budget(clock=Clock()))
    assert str(result) == (
        "cost -0.158857 after 1 action; 8 evaluations in 0.00 s, complete"
    )
