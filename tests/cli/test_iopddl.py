"""`meshwright iopddl`: within its time, interrupted, and refused."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from meshwright.features.iopddl.command import process_age_s
from meshwright.features.iopddl.problem_file import read_assignment

DATA = Path(__file__).parents[1] / "data" / "iopddl"


def test_the_example_is_solved_and_written(run, tmp_path):
    out = tmp_path / "solution.json"
    seconds = str(process_age_s() + 600)  # a command's time counts from its start
    done = run(
        "iopddl", str(DATA / "example.json"), "--seconds", seconds, "--out", str(out)
    )
    assert done.status == 0, done.err
    choices = json.loads(out.read_text())
    assert read_assignment(DATA / "example.json").cost(choices) == 445
    assert "gap       0.0000% (optimal)" in done.out
    assert "feasible  yes" in done.out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"usage_limit": 5}, "takes at least 45 more than the usage limit of 5"),
        ({}, ""),
    ],
)
def test_a_problem_without_a_feasible_solution_is_status_2_and_says_by_how_much(
    run, tmp_path, change, words
):
    content = json.loads((DATA / "example.json").read_text())
    content["problem"].update(change)
    path = tmp_path / "tight.json"
    path.write_text(json.dumps(content))
    done = run("iopddl", str(path), "--seconds", str(process_age_s() + 600))
    assert done.status == (2 if change else 0)
    assert words in done.err


def test_a_missing_file_is_status_2(run):
    done = run("iopddl", "nowhere.json")
    assert done.status == 2
    assert "nowhere.json: No such file" in done.err


def test_seconds_are_positive_and_the_folder_of_out_exists(run):
    example = str(DATA / "example.json")
    assert "give a positive number" in run("iopddl", example, "--seconds", "0").err
    assert "there is no folder" in run("iopddl", example, "--out", "no/where.json").err
    assert "is a folder" in run("iopddl", example, "--out", ".").err


def hard(path):
    """An instance whose optimum nobody proves in minutes: many nodes, each with many."""
    rng = np.random.default_rng(0)
    num, width = 200, 10
    ends = {(min(a, b), max(a, b)) for a, b in rng.integers(num, size=(1500, 2))}
    pairs = sorted((a, b) for a, b in ends if a != b)
    problem = {
        "name": "hard",
        "nodes": {
            "intervals": [[i, i + 20] for i in range(num)],
            "costs": rng.integers(1000, size=(num, width)).tolist(),
            "usages": rng.integers(100, size=(num, width)).tolist(),
        },
        "edges": {
            "nodes": np.array(pairs).tolist(),
            "costs": rng.integers(1000, size=(len(pairs), width**2)).tolist(),
        },
        "usage_limit": 20 * 60,
    }
    path.write_text(json.dumps({"problem": problem}))
    return path


def test_ctrl_c_writes_the_best_so_far(tmp_path):
    instance = hard(tmp_path / "hard.json")
    out = tmp_path / "solution.json"
    # Children of a background job ignore Ctrl-C unless they say otherwise.
    program = (
        "import runpy, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "runpy.run_module('meshwright', run_name='__main__')"
    )
    options = ["iopddl", str(instance), "--seconds", "1200", "--out", str(out)]
    with subprocess.Popen(
        [sys.executable, "-c", program, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        try:
            assert child.stderr is not None
            for line in child.stderr:
                if b"cost " in line and b"cost inf" not in line:
                    break
            child.send_signal(signal.SIGINT)
            printed, errors = child.communicate(timeout=600)
        finally:
            child.kill()
    assert child.returncode == 0, errors
    assert b"feasible  yes" in printed
    assert read_assignment(instance).is_feasible(json.loads(out.read_text()))
