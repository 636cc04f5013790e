"""Journals, workers, limits and interruptions of searches by trials."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meshwright.errors import SearchError
from meshwright.search.trials import (
    Choice,
    Front,
    Goals,
    Range,
    Space,
    Study,
    find_engine,
    run_trials,
)
from tests.search.trials.problems import GOALS, SPACE, deadly, figures

STUDY = Study(SPACE, GOALS, find_engine("nsga2"), 5)


def facts(front: Front) -> list[object]:
    return [(t.number, t.candidate, dict(t.values), t.reason) for t in front.trials]


def stopping_at(number: int):
    """An evaluation that counts, and is interrupted at call `number`."""
    calls = []

    def evaluate(candidate):
        calls.append(candidate)
        if len(calls) == number:
            raise KeyboardInterrupt
        return figures(candidate)

    return evaluate, calls


def test_a_search_goes_on_from_its_journal_and_evaluates_nothing_twice(tmp_path):
    whole = run_trials(STUDY, figures, trials=70)
    path = tmp_path / "new" / "journal.jsonl"
    evaluate, calls = stopping_at(47)
    part = run_trials(STUDY, evaluate, trials=70, journal=path)
    assert part.stopped == "interrupted"
    rest, later = stopping_at(1000)
    again = run_trials(STUDY, rest, trials=70, journal=path)
    assert facts(again) == facts(whole)
    assert (len(calls) - 1) + len(later) == 70
    none, never = stopping_at(1000)
    assert facts(run_trials(STUDY, none, trials=70, journal=path)) == facts(whole)
    assert never == []


def test_a_journal_cut_anywhere_gives_the_same_front(tmp_path):
    path = tmp_path / "journal.jsonl"
    whole = run_trials(STUDY, figures, trials=45, journal=path)
    text = path.read_text()
    rng, said = np.random.default_rng(0), []
    for _ in range(12):
        cut = int(rng.integers(len(text)))
        path.write_text(text[:cut])
        again = run_trials(STUDY, figures, trials=45, journal=path, say=said.append)
        assert facts(again) == facts(whole)
    assert any("was incomplete" in line and "repeated" in line for line in said)


def test_a_journal_of_another_search_is_refused(tmp_path):
    path = tmp_path / "journal.jsonl"
    run_trials(STUDY, figures, trials=5, journal=path)
    wider = Space({**SPACE.parts, "kernel": Choice(3, 5)})
    others = {
        "another seed: 5, but this one has 6": replace(STUDY, seed=6),
        "another engine": replace(STUDY, engine=find_engine("random")),
        "another space, in kernel": replace(STUDY, space=wider),
        "another objectives": replace(STUDY, goals=Goals({"time": "min"}, {})),
        "a condition of the space": replace(
            STUDY, space=Space(SPACE.parts, where=lambda c: c["kernel"] == 7)
        ),
    }
    for words, other in others.items():
        with pytest.raises(SearchError, match=words):
            run_trials(other, figures, trials=5, journal=path)
    path.write_text("no journal\n")
    with pytest.raises(SearchError, match="line 1 of"):
        run_trials(STUDY, figures, trials=5, journal=path)


def test_workers_change_nothing_and_survive_what_kills_them():
    study = replace(STUDY, space=Space({"number": Range(0, 5)}))
    alone = run_trials(study, deadly, trials=6, workers=1, trial_seconds=1.0)
    two = run_trials(study, deadly, trials=6, workers=2, trial_seconds=1.0)
    assert facts(alone) == facts(two)
    reasons = {trial.candidate["number"]: trial.reason for trial in alone.trials}
    died = {1: "its process ended (SIGABRT)", 2: "it took more than 1 s"}
    assert reasons == {0: "", **died, 3: "", 4: "", 5: ""}
    assert len(alone.points) == 4


def test_what_cannot_run_is_refused():
    with pytest.raises(SearchError, match="at the top of a module"):
        run_trials(STUDY, lambda c: figures(c), trials=5, workers=1)
    with pytest.raises(SearchError, match="needs worker processes"):
        run_trials(STUDY, figures, trials=5, trial_seconds=1.0)
    with pytest.raises(SearchError, match="trials is 0"):
        run_trials(STUDY, figures, trials=0)
    with pytest.raises(SearchError, match=r"the first candidate .* is not allowed"):
        replace(STUDY, first=({"kernel": 7, "kind": "plain", "widths": [32]},))


def slow_search(path: str) -> None:
    """A search of some seconds, which prints its front; for a process that is killed."""

    def evaluate(candidate):
        time.sleep(0.003)
        return figures(candidate)

    front = run_trials(STUDY, evaluate, trials=100, journal=path)
    sys.stdout.write(json.dumps(facts(front)))


def _process(call: str) -> subprocess.Popen[str]:
    """A process that calls a function of this module, as `t`."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", f"import {__name__} as t; {call}"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def _wait_for_trials(process: subprocess.Popen[str], path: Path) -> None:
    """Return when a search has added to its journal, or has ended."""
    before = path.stat().st_size if path.exists() else 0
    while process.poll() is None:
        if path.exists() and path.stat().st_size > before:
            return
        time.sleep(0.002)


@pytest.mark.slow
def test_fifty_kills_at_random_moments_change_nothing(tmp_path):
    expected = json.loads(json.dumps(facts(run_trials(STUDY, figures, trials=100))))
    rng, path, kills, fronts = np.random.default_rng(0), tmp_path / "j", 0, 0
    while kills < 50 or not fronts:
        process = _process(f"t.slow_search({str(path)!r})")
        _wait_for_trials(process, path)
        try:
            text, _ = process.communicate(timeout=0.2 * rng.random())
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
            continue
        assert json.loads(text) == expected
        fronts += 1
        path.unlink()
    assert fronts > 5


def peak_memory(path: str) -> None:
    """Print the peak memory in KiB of a process that searches 10,000 trials.

    `getrusage` has the peak of the process that started it, if that is higher.
    """
    run_trials(STUDY_OF_MANY, many_costs, trials=10_000, journal=path)
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    sys.stdout.write(status.partition("VmHWM:")[2].split()[0])


def many_costs(candidate):
    values = list(candidate.values())
    return {"a": values[0], "b": 1 - values[0] + sum(values)}


STUDY_OF_MANY = Study(
    Space({f"x{i}": Range(0.0, 1.0) for i in range(30)}),
    Goals({"a": "min", "b": "min"}, {}),
    find_engine("nsga2"),
)


@pytest.mark.slow
def test_ten_thousand_trials_take_less_than_500_mib(tmp_path):
    process = _process(f"t.peak_memory({str(tmp_path / 'j')!r})")
    text, _ = process.communicate()
    assert int(text) < 500 * 1024  # 119 MiB measured


def test_two_thousand_candidates_a_second_with_two_hundred_on_the_front():
    space = Space({f"x{i}": Range(0.0, 1.0) for i in range(10)})
    goals = Goals({"a": "min", "b": "min"}, {})
    engine = replace(find_engine("nsga2"), population=200, batch=100)

    def evaluate(candidate):
        x = candidate["x0"]
        return {"a": x, "b": 1 - x + 0.001 * sum(candidate.values())}

    begin = time.process_time()
    front = run_trials(Study(space, goals, engine), evaluate, trials=2000)
    seconds = time.process_time() - begin
    assert len(front.points) >= 200
    assert 2000 / seconds > 1000  # 4,000 measured on an idle core
