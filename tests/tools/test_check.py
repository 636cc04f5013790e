"""Every checker of the house catches a fault that is put there for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECK = ROOT / "tools/check.py"
PACKAGE = "src/meshwright"
FOLDERS = sorted(init.parent.name for init in ROOT.glob(f"{PACKAGE}/*/__init__.py"))

FAULTS = [
    ("format", f"{PACKAGE}/fault.py", "x = (1,2)\n", "fault.py"),
    ("lint", f"{PACKAGE}/fault.py", "import os\n", "F401"),
    ("lint", f"{PACKAGE}/fault.py", 'print("loud")\n', "T201"),
    ("lint", f"{PACKAGE}/fault.py", "from jax._src import core as core\n", "TID251"),
    ("lint", f"{PACKAGE}/fault.py", "import jax\n\nC = jax._src.core\n", "TID251"),
    ("types", f"{PACKAGE}/fault.py", 'x: int = "one"\n', "reportAssignmentType"),
    ("types", f"{PACKAGE}/fault.py", 'x: int = "one"  # type: ignore\n', "fault.py"),
    (
        "layers",
        f"{PACKAGE}/ir/fault.py",
        "import meshwright.partitioner.lower\n",
        "BROKEN",
    ),
    ("layers", f"{PACKAGE}/rules/fault.py", "import jax\n", "BROKEN"),
    (
        "layers",
        f"{PACKAGE}/lower/fault.py",
        "import meshwright.jax_private\n",
        "BROKEN",
    ),
    ("budget", f"{PACKAGE}/ir/fault.py", "\n" * 501, "fault.py has 501 lines"),
    ("budget", f"{PACKAGE}/novel/fault.py", "x = 1\n", "novel has no budget"),
    ("docs", "docs/fault.md", "[gone](nowhere.md)\n", "nowhere.md"),
    ("docs", f"{PACKAGE}/fault.py", "# TO" + "DO: later\n", "fault.py:1"),
    ("tests", "tests/test_fault.py", "def test_it():\n    assert False\n", "1 failed"),
    ("tests", f"{PACKAGE}/fault.py", '"""\n>>> 1 + 1\n3\n"""\n', "1 failed"),
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small package that has nothing wrong with it, under the rules of this one."""
    for name in ("pyproject.toml", "tools/budget.toml"):
        write(tmp_path / name, (ROOT / name).read_text(encoding="utf-8"))
    for name in ("", *FOLDERS):
        write(tmp_path / PACKAGE / name / "__init__.py", "")
    for name in ("errors", "jax_private"):
        write(tmp_path / PACKAGE / f"{name}.py", "X = 1\n")
    write(tmp_path / "tests/test_good.py", "def test_it():\n    assert True\n")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def run(tree: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        (sys.executable, str(CHECK), "--root", str(tree), *arguments),
        env={**os.environ, "WORKERS": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_tree_without_faults_passes_every_step(tree: Path):
    status, output = run(tree)
    assert status == 0, output


@pytest.mark.parametrize(("step", "name", "text", "words"), FAULTS)
def test_a_fault_is_caught_and_named(tree: Path, step, name, text, words):
    write(tree / name, text)
    status, output = run(tree, step)
    assert status == 1, output
    assert words in output


def test_a_folder_over_its_budget_is_caught(tree: Path):
    toml = tree / "tools/budget.toml"
    text = toml.read_text(encoding="utf-8")
    write(toml, text.replace('meshwright/ir" = ', 'meshwright/ir" = 2 # '))
    write(tree / PACKAGE / "ir/more.py", "X = 1\nY = 2\nZ = 3\n")
    status, output = run(tree, "budget")
    assert status == 1
    assert "src/meshwright/ir has 3 lines, over its budget of 2" in output


def test_one_failing_step_does_not_hide_the_next(tree: Path):
    write(tree / PACKAGE / "fault.py", "import os\nx = (1,2)\n")
    status, output = run(tree, "format", "lint", "budget")
    assert status == 1
    assert "failed: format, lint" in output


def test_an_unknown_step_lists_those_there_are(tree: Path):
    status, output = run(tree, "spelling")
    assert status == 2
    assert "no step spelling; there are format, lint" in output
