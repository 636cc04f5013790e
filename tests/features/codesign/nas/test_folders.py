"""Folders of searches for models: whose they are, and what is left in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshwright.codesign import nas
from meshwright.errors import SearchError, TargetError
from meshwright.features.codesign.nas.command import nas_command
from tests.features.codesign.nas import space_module

SPACE = """
from meshwright.codesign import nas

def space():
    return nas.Space({"a": nas.Range(0, 99)})

def evaluate(c):
    return {"accuracy": -abs(c["a"] - 50), "latency_s": 1.0}
"""


@pytest.fixture
def space(tmp_path) -> Path:
    path = tmp_path / "space.py"
    path.write_text(SPACE)
    return path


def run(space: Path, *arguments: object):
    return CliRunner().invoke(
        nas_command, ["search", str(space), "--machine", "v100", *map(str, arguments)]
    )


def test_models_that_left_the_front_leave_the_folder(space, tmp_path):
    out = tmp_path / "found"
    assert run(space, "--trials", 2, "--out", out).exit_code == 0
    (before,) = out.glob("model-*")
    (before / "notes.txt").write_text("mine")
    mine = out / "model-best"
    mine.mkdir()
    (mine / "model.py").write_text("mine")
    assert run(space, "--trials", 60, "--resume", out).exit_code == 0
    points = json.loads((out / "front.json").read_text())["points"]
    kept = {f"model-{point['trial']:05d}" for point in points}
    assert before.name not in kept
    found = {path.name for path in out.glob("model-*")}
    assert found == kept | {before.name, mine.name}
    assert (mine / "model.py").exists()
    assert [path.name for path in before.iterdir()] == ["notes.txt"]


def test_folders_of_other_searches_are_refused(space, tmp_path):
    out, other = tmp_path / "found", tmp_path / "other"
    assert run(space, "--trials", 2, "--out", out).exit_code == 0
    for words, arguments in {
        "name two folders": ("--resume", out, "--out", other),
        "another evaluation": ("--resume", out, "--machine", "h100"),
        "cannot make the folder": ("--out", space),
        "has no journal.jsonl": ("--resume", tmp_path),
        "no journal.jsonl; begin": ("--resume", other),
    }.items():
        answer = run(space, "--trials", 3, *arguments)
        assert words in str(answer.exception), words
    other.mkdir()  # of a search that was killed before its first trial
    assert run(space, "--trials", 2, "--resume", other).exit_code == 0


def test_a_file_and_a_command_name_the_same_machine(tmp_path):
    path = tmp_path / "space.py"
    path.write_text(
        "from dataclasses import replace\n"
        "from tests.features.codesign.nas.space_module import *\n"
        "def own():\n    return space(), replace(evaluate, machine='v100')\n"
    )
    assert nas.SpaceFile(f"{path}:own", "v100").evaluate.machine == "v100"
    with pytest.raises(TargetError, match=r"prices models on v100, and .* is h100"):
        _ = nas.SpaceFile(f"{path}:own", "h100").evaluate


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"build": 3}, "build is 3; wanted a function"),
        ({"rate": -1}, "rate is -1; wanted a number above 0"),
        ({"proxies": "synflow"}, "proxies is 'synflow'; wanted a list"),
    ],
)
def test_options_of_a_training(changes, words):
    with pytest.raises(SearchError, match=words):
        nas.Trained(**{"build": space_module.build, "data": (), **changes})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda y: y + 0.5, "labels are float64 from 0.5 on; wanted whole numbers"),
        (lambda y: y - 1, "labels are int32 from -1 on"),
        (lambda y: y + 2, r"outputs of shape \(1, 2\), .* up to 3; wanted"),
        (lambda y: y[:, None], r"labels have \(1, 1\) with numbers up to 1"),
    ],
)
def test_labels_that_are_no_classes_of_the_model(change, words):
    x, y, u, v = space_module.data()
    trained = nas.Trained(space_module.build, (x, change(y), u, change(v)), steps=1)
    with pytest.raises(SearchError, match=words):
        trained(space_module.baseline)
