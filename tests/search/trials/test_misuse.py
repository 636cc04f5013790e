"""Misuse of a search is one sentence, before anything is evaluated."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from meshwright.errors import SearchError
from meshwright.search.trials import (
    Choice,
    Goals,
    Nsga2,
    RandomDraws,
    Space,
    Study,
    find_engine,
    run_trials,
)
from tests.search.trials.problems import GOALS, REFERENCE, SPACE, figures

STUDY = Study(SPACE, GOALS, RandomDraws())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: run_trials(STUDY, None, trials=5), "evaluate is None; wanted a func"),
        (lambda: replace(STUDY, seed=-1), "seed is -1; wanted a whole number"),
        (lambda: replace(STUDY, seed="a"), "seed is 'a'; wanted a whole number"),
        (lambda: find_engine(Nsga2), r"wanted nsga2.* or an engine such as Nsga2\(\)"),
        (lambda: Goals({"a": "max"}, ["b"]), r"constraints is \['b'\]; wanted a dict"),
        (
            lambda: run_trials(STUDY, figures, trials=2).hypervolume(
                {**REFERENCE, "tme": 1.0}
            ),
            "names 'tme', no objective; did you mean 'time'",
        ),
    ],
)
def test_misuse_is_a_sentence(make, words):
    with pytest.raises(SearchError, match=words):
        make()


class Priced:
    """An evaluation that says on what its figures depend."""

    def __init__(self, machine: str) -> None:
        self.identity = {"machine": machine, "steps": 3}

    def __call__(self, candidate):
        return figures(candidate)


def test_a_journal_of_another_evaluation_is_refused(tmp_path):
    journal = tmp_path / "journal.jsonl"
    args = {"trials": 4, "journal": journal}
    whole = run_trials(STUDY, Priced("fast"), **args)
    assert str(run_trials(STUDY, Priced("fast"), **args)) == str(whole)
    words = "another evaluation, in machine: {'machine': 'fast'}, but .* 'slow'"
    with pytest.raises(SearchError, match=words):
        run_trials(STUDY, Priced("slow"), **args)
    header, *rest = journal.read_text().splitlines(keepends=True)
    entry = json.loads(header)
    del entry["evaluation"]  # as earlier versions wrote it
    journal.write_text("".join([json.dumps(entry) + "\n", *rest]))
    assert str(run_trials(STUDY, Priced("slow"), **args)) == str(whole)


def test_an_identity_is_kept_as_a_journal_has_it(tmp_path):
    evaluate, args = Priced("fast"), {"trials": 4, "journal": tmp_path / "a.jsonl"}
    evaluate.identity = {"sizes": (1, 2), 3: "three"}
    whole = run_trials(STUDY, evaluate, **args)
    assert str(run_trials(STUDY, evaluate, **args)) == str(whole)
    with pytest.raises(SearchError, match="another evaluation, in sizes"):
        run_trials(STUDY, figures, **args)
    for faulty in ("text", {"a": float("nan")}, {"a": figures}):
        evaluate.identity = faulty
        with pytest.raises(SearchError, match="which a journal cannot keep"):
            run_trials(STUDY, evaluate, **args)


def test_a_journal_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SearchError, match=r"cannot write a journal at .*file"):
        run_trials(STUDY, figures, trials=2, journal=tmp_path / "file" / "journal")
    with pytest.raises(SearchError, match="cannot read lines, one journal entry in"):
        run_trials(STUDY, figures, trials=2, journal=tmp_path)


def test_a_front_says_why_the_search_ended_early():
    space = Space({"a": Choice(1, 2)})
    study = Study(space, Goals({"a": "max"}, {}), RandomDraws())
    front = run_trials(study, lambda c: dict(c), trials=9)
    assert str(front).startswith(
        "1 points of 2 trials; the engine has no other candidate"
    )
