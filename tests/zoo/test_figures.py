"""Training figures: what a run stores, what stays of earlier ones, and wrong options."""

import json
import math
from dataclasses import replace

import pytest

from zoo import figures
from zoo.catalogue import WORKLOADS


def curve(seed, steps):
    """A run that learns nothing and takes no time."""
    return ({"loss": 1.0 + seed} for _ in range(steps))


@pytest.fixture
def quick(monkeypatch):
    """The catalogue with programs that train in no time, and no picture of them."""
    made = tuple(replace(w, train=curve, metric="loss", steps=3) for w in WORKLOADS)
    monkeypatch.setattr(figures, "WORKLOADS", made)
    monkeypatch.setattr(figures, "draw", lambda stored, folder: None)


def stored(folder):
    return json.loads((folder / figures.FIGURES).read_text())


def test_a_run_replaces_that_of_its_seed_alone(quick, tmp_path):
    old = {"steps": 3, "metric": "loss", "seeds": {"0": "old", "1": "old"}}
    figures.save({"gpt": old, "gns": old}, tmp_path)
    figures.main(["gpt", "--seeds", "2", "0", "--out", str(tmp_path)])
    found = stored(tmp_path)
    assert found["gns"] == old
    assert list(found["gpt"]["seeds"]) == ["0", "1", "2"]
    assert found["gpt"]["seeds"]["1"] == "old"
    assert found["gpt"]["seeds"]["0"]["metrics"]["loss"]["last"] == 1.0


def test_runs_of_another_number_of_steps_make_way(quick, tmp_path):
    old = {"steps": 4, "metric": "loss", "seeds": {"0": "old", "1": "old"}}
    figures.save({"gpt": old}, tmp_path)
    figures.main(["gpt", "--seeds", "2", "--out", str(tmp_path)])
    assert list(stored(tmp_path)["gpt"]["seeds"]) == ["2"]


def test_a_run_stores_its_seconds_by_the_clock_and_of_the_processor(quick, tmp_path):
    figures.main(["gpt", "--seeds", "0", "--out", str(tmp_path)])
    run = stored(tmp_path)["gpt"]["seeds"]["0"]
    assert 0 <= run["seconds"] < 60
    assert 0 <= run["cpu_s"] < 60


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nosuch"], "there is no program 'nosuch'; there are gpt, gpt3"),
        (["gpt", "--seeds", "-1"], "a seed is a whole number from 0, not -1"),
        (["gpt", "--seeds", "one"], "a seed is a whole number from 0, not one"),
        (["gpt", "--out", __file__], "is no folder"),
    ],
)
def test_wrong_options_end_with_a_line_and_status_2(quick, arguments, words, capsys):
    with pytest.raises(SystemExit) as ended:
        figures.main(arguments)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_no_stored_run_needs_a_minute():
    """What zoo/README.md says; by the clock, or beside other work by the processor."""
    for name, entry in figures.load().items():
        for seed, run in entry["seeds"].items():
            needed_s = min(run["seconds"], run.get("cpu_s", math.inf))
            assert needed_s < 60, f"{name}, seed {seed}"
