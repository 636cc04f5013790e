"""The contract of engines of trials, tested on each of them."""

from __future__ import annotations

import json
from importlib.util import find_spec

import numpy as np
import pytest

from meshwright.errors import SearchError
from meshwright.search import Annealing
from meshwright.search.trials import (
    ENGINES,
    AskTell,
    Choice,
    Front,
    Goals,
    Halving,
    Range,
    Scalarised,
    Space,
    Study,
    Trial,
    find_engine,
    front_of,
    hypervolume,
    run_trials,
)
from meshwright.search.trials.engines.estimates.improvement import expected_improvement
from meshwright.search.trials.engines.memetic import neighbours
from meshwright.search.trials.space.coding import Draws
from tests.search.trials.problems import (
    GOALS,
    REFERENCE,
    SPACE,
    all_candidates,
    faulty,
    figures,
)

_EXTRAS = ("optuna", "pymoo")
OURS = [name for name in ENGINES if not name.startswith(_EXTRAS)]
ALL = [
    *OURS,
    *(
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                find_spec(name.partition("-")[0]) is None, reason="extra `search`"
            ),
        )
        for name in ENGINES
        if name not in OURS
    ),
]
every_engine = pytest.mark.parametrize("engine", ALL)


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


@pytest.mark.parametrize("engine", OURS)
def test_a_search_of_the_whole_space_finds_the_front(engine):
    trials = 100 if engine == "gp" else 400  # a model learns more from each
    front = run_trials(study(engine), figures, trials=trials)
    assert front.hypervolume(REFERENCE) == pytest.approx(true_volume(), rel=0.02)
    tried = {json.dumps((trial.candidate, trial.fidelity)) for trial in front.trials}
    assert len(front.trials) == len(tried)
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
    front = run_trials(study(engine), lambda c, fidelity=1.0: {"accuracy": 1.0, "time": 1.0, "memory": 99}, trials=60)  # noqa: E501  # fmt: skip
    assert front.points == ()
    assert "60 of them failed for: memory <= 60" in str(front)


@every_engine
def test_a_space_of_one_candidate_is_used_up(engine):
    front = run_trials(study(engine, space=Space({"kernel": 3, "kind": "plain", "widths": [8]})), figures, trials=9)  # noqa: E501  # fmt: skip
    assert {trial.candidate["kernel"] for trial in front.trials} == {3}
    assert front.stopped in ("exhausted", "stalled")
    assert len(front.points) == 1


@pytest.mark.parametrize(
    "engine", [name for name in OURS if name not in ("random", "halving")]
)
def test_engines_that_learn_beat_random_draws(engine):
    space = Space({f"x{i}": Range(0.0, 1.0) for i in range(8)})

    def sphere(candidate):
        x = np.array(list(candidate.values()))
        near = float(((x[1:] - 0.7) ** 2).sum())
        return {"accuracy": x[0] - near, "time": x[0] ** 2 + near, "memory": 1}

    def volume(name: str) -> float:
        found = [
            run_trials(
                study(name, seed, space), sphere, trials=60 if engine == "gp" else 160
            )
            for seed in range(3)
        ]
        return sum(front.hypervolume({"accuracy": -2, "time": 3}) for front in found)

    assert volume(engine) > 1.02 * volume("random")


def test_standing_engines_work_on_a_scalarised_cost():
    engine = Scalarised(Annealing(0), lambda values: -values["accuracy"])
    front = run_trials(Study(SPACE, GOALS, engine), figures, trials=120)
    feasible = [each for each in map(figures, all_candidates()) if each["memory"] <= 60]
    best = max(values["accuracy"] for values in feasible)
    assert front.best().values["accuracy"] > 0.98 * best
    assert facts(run_trials(Study(SPACE, GOALS, engine), figures, trials=120)) == facts(front)  # noqa: E501  # fmt: skip


def test_halving_tries_the_best_in_whole():
    engine = Halving(find_engine("nsga2"), (0.25, 1.0), keep=0.5)
    front = run_trials(Study(SPACE, GOALS, engine), figures, trials=90)
    first = [trial.fidelity for trial in front.trials[:60]]
    assert first == [0.25] * 40 + [1.0] * 20
    assert all(point.fidelity == 1 for point in front.points)


def test_expected_improvement_is_the_mean_of_the_improvement():
    rng = np.random.default_rng(0)
    for dims in (1, 3):
        front = rng.random((6, dims))
        front = front[front_of(front, np.zeros(6))]
        mean, deviation = rng.random((3, dims)), 0.1 + rng.random((3, dims))
        reference = np.full(dims, 1.2)
        found = expected_improvement(mean, deviation, front, reference)
        whole = hypervolume(front, reference)
        for row in range(3):
            draws = rng.normal(mean[row], deviation[row], (1000, dims))
            gains = [hypervolume([*front, draw], reference) - whole for draw in draws]
            error = np.std(gains) / len(gains) ** 0.5
            assert abs(np.mean(gains) - found[row]) < 4 * error + 1e-6


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


def test_a_neighbour_has_one_gene_changed_or_two_levels_in_opposite_directions():
    space = Space({"a": Range(0, 5), "b": Range(0, 5), "c": Choice("x", "y", "z")})
    draws = Draws(space, np.random.default_rng(0), 1)
    code = draws.coding.code_of({"a": 2, "b": 5, "c": "y"})
    found = [space.decode(each.tolist()) for each in neighbours(draws, code)]
    a = [{"a": a, "b": 5, "c": "y"} for a in (0, 1, 3, 4)]
    b = [{"a": 2, "b": b, "c": "y"} for b in (3, 4)]
    c = [{"a": 2, "b": 5, "c": each} for each in "xz"]
    assert found == [*a, *b, *c, {"a": 3, "b": 4, "c": "y"}]


def test_descent_ends_where_no_neighbour_is_better():
    """Alone, the gene that rises breaks the limit, and the one that falls costs more."""
    space = Space(
        {"a": Range(0, 40), "b": Range(0, 40)}, where=lambda c: sum(c.values()) <= 40
    )
    goals = Goals({"worth": "max"}, {})
    front = run_trials(
        Study(space, goals, find_engine("memetic"), 0, [{"a": 0, "b": 40}]),
        lambda c: {"worth": 3 * c["a"] + 2 * c["b"]}, trials=400,
    )  # fmt: skip
    assert front.points[0].candidate == {"a": 40, "b": 0}
