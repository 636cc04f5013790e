"""The objective: how it orders plans, and errors for wrong weights."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import PlanError
from meshwright.planner.candidates.objective import OBJECTIVES, Objective

FIGURES = st.tuples(st.floats(1e-6, 1e3), st.integers(1, 2**40))
WEIGHTS = st.tuples(st.floats(0, 10), st.floats(0, 10)).filter(lambda w: sum(w) > 0.01)


def objective(time, memory):
    return Objective.of({"step_time": time, "memory": memory})


@given(FIGURES, FIGURES, WEIGHTS, st.floats(1e-3, 1e3))
def test_only_ratios_of_weights_count_whatever_the_units(one, other, weights, scale):
    """The ratio of two plans' values is the same in all units and scales."""
    ratio = objective(*weights)(*one) / objective(*weights)(*other)
    scaled = objective(*(scale * w for w in weights))
    in_units = [scaled(scale * seconds, b) for seconds, b in (one, other)]
    assert in_units[0] / in_units[1] == pytest.approx(ratio, rel=1e-9)


@given(FIGURES)
def test_with_half_the_weight_four_times_the_memory_counts_like_twice_the_time(figures):
    seconds, num_bytes = figures
    value = objective(1, 0.5)
    dearer = value(seconds, 4 * num_bytes)
    assert dearer == pytest.approx(value(2 * seconds, num_bytes))


@pytest.mark.parametrize("name", ["cost", "energy", "carbon"])
def test_cost_energy_and_carbon_order_plans_by_time(name):
    assert Objective.of(name)(3.0, 5) == pytest.approx(3.0)


def test_an_objective_as_text_is_read_back_as_the_same():
    for text in (
        *OBJECTIVES,
        "step_time=1,memory=0.3",
        "memory=2,cost=1e-05",
        "memory=0.12345678,cost=3",
    ):
        assert str(Objective.of(text)) == text
        assert Objective.of(str(Objective.of(text))) == Objective.of(text)


WRONG = {
    "objective is 'speed'; wanted one of step_time, memory": "speed",
    "objective is 'spede'": {"spede": 1.0},
    "objective is 3; wanted a name": 3,
    "cannot read 'memory=much'": "step_time=1,memory=much",
    "'memory' stands twice": "memory=1,memory=2",
    "weight of 'memory' is -1": {"memory": -1},
    "weight of 'memory' is nan": {"memory": math.nan},
    "weight of 'memory' is inf": "memory=inf",
    "weight of 'memory' is 'high'; wanted a number": {"memory": "high"},
    "no weight of the objective is above 0": {"memory": 0, "step_time": 0.0},
    "give at least one": {},
}


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_objective_is_refused_with_its_reason(words):
    with pytest.raises(PlanError) as error:
        Objective.of(WRONG[words])
    assert words in str(error.value)
