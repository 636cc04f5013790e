"""The set-up of a fresh machine: Makefile, lock files, `.ci/run`."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools import wheel

ROOT = Path(__file__).resolve().parents[2]
CONDITION = r"[a-z_]+ [=!<>]+ '[A-Za-z0-9.]+'"
PIN = re.compile(
    rf"[a-z0-9-]+==[0-9][0-9a-z.]*( ; {CONDITION}( (and|or) {CONDITION})*)?"
)
LOCKS = (
    "requirements.lock",
    "requirements-oldest.lock",
    "requirements-docs.lock",
    "requirements-iree.lock",
    "requirements-deploy.lock",
    "requirements-sparse.lock",
    "requirements-codesign.lock",
    "requirements-floorplan.lock",
    "requirements-cluster.lock",
)


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def run(tree: Path, *command: str) -> tuple[int, str]:
    done = subprocess.run(
        command, cwd=tree, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_pins_by_name_and_holds_no_address(name: str):
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    assert lines
    assert [line for line in lines if not PIN.fullmatch(line)] == []


def test_the_oldest_lock_holds_the_promise_of_the_project_file():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"], *extras["zoo"], *extras["dev"]]
    promised = re.findall(r"([a-z-]+)>=([0-9.]+)", " ".join(named))
    oldest = (ROOT / "requirements-oldest.lock").read_text(encoding="utf-8")
    pins = dict(line.split(" ;")[0].split("==") for line in oldest.splitlines()[::-1])
    assert "jax" in dict(promised)
    for name, version in promised:
        assert f"{pins[name]}.".startswith(f"{version}."), name


def test_the_description_on_a_package_index_has_no_relative_links():
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(r"!\[.*\]\(docs/", text), "the pictures that must not be there"
    hook = tool["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    for each in hook["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    assert re.findall(r"\]\((?!https?:|#)", text) == []
    assert "Alternatives says when another tool is the better choice." in text


def test_the_trial_of_the_wheel_stops_at_the_first_failure(tmp_path: Path):
    script(tmp_path / "tried", "echo the reason; exit 1")
    with pytest.raises(SystemExit, match="the reason"):
        wheel.run([tmp_path / "tried"], tmp_path)


def test_the_wheel_is_tried_without_this_tree_on_the_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    script(tmp_path / "tried", 'test -z "$PYTHONPATH"')
    wheel.run([tmp_path / "tried"], tmp_path)


def test_a_python_that_does_not_start_is_not_tried(tmp_path, monkeypatch):
    script(tmp_path / "python3.99", "echo not selected; exit 127")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert not wheel.works("python3.99")
    assert not wheel.works("python3.98")
    assert wheel.works(sys.executable)


def test_make_describes_each_of_its_targets():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (names,) = re.findall(r"^\.PHONY: (.*)", text, re.MULTILINE)
    described = re.findall(r'@echo "make ([a-z-]+)', text)
    assert sorted(set(names.split()) - {"help"}) == sorted(described)


def test_an_old_python_is_refused_with_the_way_out(tmp_path: Path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("requirements.lock", "pyproject.toml"):
        (tmp_path / name).touch()
    script(tmp_path / "old", 'test "$1" = -V && echo Python 3.11.7 && exit 0\nexit 1')
    status, output = run(tmp_path, "make", "PYTHON=./old", "test")
    assert status != 0
    assert "needs Python >= 3.12; ./old is Python 3.11.7" in output
    assert "make PYTHON=python3.12 test" in output
    assert not (tmp_path / ".venv").exists()


PARTS = (
    "test",
    "docs",
    "test-wheel",
    ".venv-oldest/.installed",
    "test-iree",
    "test-deploy",
    "test-search",
    "test-policies",
    "test-sparse",
    "test-codesign",
    "test-floorplan",
    "test-cluster",
)
"""What `.ci/run` makes, beside the checks that it runs itself."""


def write_makefile(tree: Path, failing: str = "") -> None:
    """A Makefile in which all parts of CI succeed, but for one."""
    rules = [
        f"{part}:\n\t@{'false' if part == failing else 'true'}\n" for part in PARTS
    ]
    text = "".join([f".PHONY: {' '.join(PARTS)}\n", *rules])
    (tree / "Makefile").write_text(text, encoding="utf-8")


@pytest.fixture
def ci(tmp_path: Path) -> Path:
    """A tree in which all that is made and all that Python runs succeeds."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci")
    write_makefile(tmp_path)
    text = "@pytest.mark.slow\n"
    for folder in ("", "app", "golden", "partitioner", "program", "run"):
        (tmp_path / "tests" / folder).mkdir()
    (tmp_path / "tests/features/deploy").mkdir(parents=True)
    (tmp_path / "tests/test_long.py").write_text(text, encoding="utf-8")
    script(tmp_path / ".venv/bin/python", "exit 0")
    script(tmp_path / ".venv-oldest/bin/python", "exit 0")
    return tmp_path


def test_ci_passes_when_all_parts_pass(ci: Path):
    status, output = run(ci, ".ci/run")
    assert status == 0, output
    assert "all passed" in output


@pytest.mark.parametrize("part", PARTS)
def test_ci_fails_when_a_part_fails(part: str, ci: Path):
    write_makefile(ci, failing=part)
    assert run(ci, ".ci/run")[0] != 0


def test_ci_fails_when_a_test_fails_on_the_oldest_jax(ci: Path):
    script(ci / ".venv-oldest/bin/python", "exit 1")
    status, output = run(ci, ".ci/run")
    assert status != 0
    assert "failed with status 1 on the oldest jax" in output


def test_ci_goes_on_when_the_oldest_jax_runs_out_of_time(ci: Path):
    script(ci / ".venv-oldest/bin/python", "exit 124")  # as `timeout` ends
    status, output = run(ci, ".ci/run")
    assert status == 0, output
    assert "ended after 90 s" in output


def test_ci_fails_when_a_static_check_fails(ci: Path):
    script(ci / ".venv/bin/python", 'test "$1" != tools/check.py')
    assert run(ci, ".ci/run")[0] != 0


def test_ci_fails_when_a_slow_test_fails(ci: Path):
    due = 'test "$1" = tools/rotate.py && echo tests/test_long.py && exit'
    script(ci / ".venv/bin/python", f'{due}\ntest "$1" != -m')
    status, output = run(ci, ".ci/run")
    assert status != 0
    assert "failed with status 1: tests/test_long.py" in output
