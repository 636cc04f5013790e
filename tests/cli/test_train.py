"""`meshwright train`: a recipe on the command line, its plan, its end and its errors."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from meshwright.features.train.command import resuming_command
from tests.features.train.recipes import TEXT, losses


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def train(recipe, *options, wait=True):
    command = [sys.executable, "-m", "meshwright", "train", str(recipe), *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        if not wait:
            assert process.stderr is not None
            seen = ""
            while "step 10:" not in seen:
                seen = process.stderr.readline()
                assert seen
            os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate()
    return process.returncode, out, err


@pytest.mark.slow
def test_ctrl_c_ends_with_status_130_and_says_how_to_go_on(recipe, tmp_path):
    folder = tmp_path / "run"
    status, out, err = train(
        recipe, "--steps", "100000", "--out", str(folder), wait=False
    )
    assert status == 130, err
    options = f"--resume --steps 100000 --out {folder}"
    assert f"go on with: meshwright train {recipe} {options}" in out
    done = max(losses(folder))
    assert 10 <= done < 100000
    status, out, err = train(
        recipe, "--resume", "--steps", str(done + 1), "--out", str(folder)
    )
    assert status == 0, err
    assert f"goes on after step {done}" in err
    assert f"step {done + 1} of {done + 1}: loss" in out


def test_the_command_that_goes_on_repeats_all_options():
    given = {"--steps": 9, "--out": Path("a b"), "--cluster": None}
    assert resuming_command(Path("my run/r.toml"), given) == (
        "meshwright train 'my run/r.toml' --resume --steps 9 --out 'a b'"
    )


def test_a_dry_run_prints_the_plan_and_writes_nothing(run, recipe, tmp_path):
    folder = tmp_path / "run"
    result = run("train", str(recipe), "--dry-run", "--out", str(folder))
    assert result.status == 0, result.err
    assert "data=4" in result.out
    assert "all-reduce" in result.out
    assert not folder.exists()


def test_a_run_ends_with_its_last_numbers_and_is_not_overwritten(run, recipe, tmp_path):
    folder = str(tmp_path / "run")
    result = run("train", str(recipe), "--steps", "2", "--out", folder)
    assert result.status == 0, result.err
    assert "step 2 of 2: loss" in result.out
    again = run("train", str(recipe), "--steps", "3", "--out", folder)
    assert again.status == 2
    assert "has a run of 2 steps; go on with --resume" in again.err


def test_an_unknown_entry_is_one_line_with_its_place(run, recipe):
    recipe.write_text(TEXT.replace("steps = 12", "stepz = 12"), encoding="utf-8")
    line = recipe.read_text().splitlines().index("stepz = 12") + 1
    result = run("train", str(recipe))
    assert result.status == 2
    where = f"{recipe}:{line}: unknown entry run.stepz; did you mean 'steps'?"
    assert where in result.err
