"""The contract of engines of trials, tested on each of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from meshwright.errors import SearchError
from meshwright.search.trials import (
    ENGINES,
    AskTell,
    Front,
    Range,
    Space,
    Study,
    Trial,
    find_engine,
    front_of,
    run_trials,
)
from tests.search.trials.problems import (
    GOALS,
    REFERENCE,
    SPACE,
    all_candidates,
    faulty,
    figures,
)

every_engine = pytest.mark.parametrize("engine", ENGINES)


def study(engine: str, seed: int = 0, space: Space = SPACE) -> Study:
    return Study(space, GOALS, find_engine(engine), seed)


def facts(front: Front) -> list[object]:
    return [(t.number, t.candidate, dict(t.values), t.reason) for t in front.trials]


def true_volume() -> float:
    values = [figures(candidate) for candidate in all_candidates()]
    costs = np.array([GOALS.costs(each) for each in values])
    over = np.array([sum(GOALS.violations(each).values()) for each in values])
    chosen = front_of(costs, over)
    trials = [
        Trial(i, {}, 1.0, values[i], tuple(costs[i]), 0.0, "", 0.0) for i in chosen
    ]
    return Front(GOALS, tuple(trials), "trials").hypervolume(REFERENCE)


@every_engine
def test_a_search_of_the_whole_space_finds_the_front(engine):
    front = run_trials(study(engine), figures, trials=200)
    assert front.hypervolume(REFERENCE) == pytest.approx(true_volume(), rel=0.01)
    assert len(facts(front)) == len({json.dumps(t.candidate) for t in front.trials})
    assert all(not SPACE.broken(trial.candidate) for trial in front.trials)


@every_engine
def test_same_seed_same_trials_and_a_longer_search_begins_as_a_shorter_one(engine):
    short = run_trials(study(engine, 3), figures, trials=33)
    long = run_trials(study(engine, 3), figures, trials=70)
    other = run_trials(study(engine, 4), figures, trials=33)
    assert facts(short) == facts(long)[:33] != facts(other)
    assert [trial.number for trial in long.trials] == list(range(70))


@every_engine
def test_a_first_candidate_is_tried_first(engine):
    baseline = {"kernel": 5, "kind": {"gate": "swish"}, "widths": [24, 8]}
    first = Study(SPACE, GOALS, find_engine(engine), 1, (baseline,))
    assert run_trials(first, figures, trials=5).trials[0].candidate == baseline


@every_engine
def test_trials_that_fail_are_recorded_and_the_search_goes_on(engine):
    front = run_trials(study(engine), faulty, trials=90)
    reasons = {trial.reason for trial in front.trials}
    assert "ValueError: out of luck" in reasons
    assert "accuracy is nan" in reasons
    assert any("lacks the objective 'time'; it returned accuracy" in r for r in reasons)
    assert len(front.trials) == 90
    assert front.points
    assert not any(point.reason for point in front.points)


@every_engine
def test_nothing_feasible_is_no_fault(engine):
    front = run_trials(study(engine), lambda c: {"accuracy": 1.0, "time": 1.0, "memory": 99}, trials=60)  # noqa: E501  # fmt: skip
    assert front.points == ()
    assert "60 of them failed for: memory <= 60" in str(front)


@every_engine
def test_a_space_of_one_candidate_is_used_up(engine):
    front = run_trials(study(engine, space=Space({"kernel": 3, "kind": "plain", "widths": [8]})), figures, trials=9)  # noqa: E501  # fmt: skip
    assert (len(front.trials), front.stopped) == (1, "exhausted")


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "random"])
def test_engines_that_learn_beat_random_draws(engine):
    space = Space({f"x{i}": Range(0.0, 1.0) for i in range(8)})

    def sphere(candidate):
        x = np.array(list(candidate.values()))
        near = float(((x[1:] - 0.7) ** 2).sum())
        return {"accuracy": x[0] - near, "time": x[0] ** 2 + near, "memory": 1}

    def volume(name: str) -> float:
        found = [
            run_trials(study(name, seed, space), sphere, trials=160)
            for seed in range(3)
        ]
        return sum(front.hypervolume({"accuracy": -2, "time": 3}) for front in found)

    assert volume(engine) > 1.02 * volume("random")


def test_ask_and_tell_run_by_the_caller():
    asker = AskTell(study("random"))
    batch = asker.ask()
    with pytest.raises(SearchError, match="ask before tell"):
        asker.ask()
    with pytest.raises(SearchError, match="told 1 outcomes"):
        asker.tell([{}])
    trials = asker.tell([figures(request.candidate) for request in batch])
    assert [trial.candidate for trial in trials] == [r.candidate for r in batch]


def test_an_unknown_engine_is_refused_with_the_nearest_name():
    with pytest.raises(SearchError, match="did you mean 'nsga2'"):
        find_engine("nsga3")
