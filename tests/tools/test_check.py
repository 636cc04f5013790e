"""Each step of `tools/check.py` catches a deliberate fault."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECK = ROOT / "tools/check.py"
PACKAGE = "src/meshwright"
FOLDERS = sorted(init.parent for init in (ROOT / PACKAGE).rglob("__init__.py"))
EXCEPTIONS = "fragments = 0\n[class_names]\n[rooms]\n[records]\n"
FLAGS = "class Rules:\n" + "".join(f"    is_{c}: bool\n" for c in "abcd")

FAULTS = [
    ("format", f"{PACKAGE}/fault.py", "x = (1,2)\n", "fault.py"),
    ("lint", f"{PACKAGE}/fault.py", "import os\n", "F401"),
    ("lint", f"{PACKAGE}/fault.py", 'print("loud")\n', "T201"),
    ("lint", f"{PACKAGE}/fault.py", "from jax._src import core as core\n", "TID251"),
    ("lint", f"{PACKAGE}/fault.py", "import jax\n\nC = jax._src.core\n", "TID251"),
    ("types", f"{PACKAGE}/fault.py", 'x: int = "one"\n', "reportAssignmentType"),
    ("types", f"{PACKAGE}/fault.py", 'x: int = "one"  # type: ignore\n', "fault.py"),
    ("layers", f"{PACKAGE}/program/ir/fault.py", "import meshwright.app\n", "BROKEN"),
    ("layers", f"{PACKAGE}/program/ir/fault.py", "import jax\n", "BROKEN"),
    (
        "layers",
        f"{PACKAGE}/app/fault.py",
        "def f():\n    import meshwright.features.sparse\n",
        "the core imports no feature BROKEN",
    ),
    (
        "layers",
        f"{PACKAGE}/features/sparse/fault.py",
        "import meshwright.features.chips\n",
        "Features do not know each other BROKEN",
    ),
    (
        "layers",
        f"{PACKAGE}/partitioner/lower/fault.py",
        "import meshwright.jax_private\n",
        "BROKEN",
    ),
    (
        "layers",
        f"{PACKAGE}/search/assignment/problem/fault.py",
        "import meshwright.search.assignment.primal\n",
        "BROKEN",
    ),
    ("rooms", f"{PACKAGE}/app/fault.py", FLAGS, "Rules has 4 boolean fields"),
    ("rooms", f"{PACKAGE}/app/fault.py", "\n" * 2501, "app has 1 files and 2501 lines"),
    (
        "language",
        f"{PACKAGE}/fault.py",
        'def f() -> None:\n    """Those of it."""\n',
        'fault.py:1: "Those of it." starts as a fragment',
    ),
    (
        "language",
        f"{PACKAGE}/fault.py",
        "class A:\n    class A:\n        pass\n",
        "class name A is used twice",
    ),
    ("budget", f"{PACKAGE}/app/fault.py", "\n" * 501, "fault.py has 501 lines"),
    ("budget", f"{PACKAGE}/features/novel/fault.py", "x = 1\n", "novel has no budget"),
    ("docs", "docs/fault.md", "[gone](nowhere.md)\n", "nowhere.md"),
    ("docs", f"{PACKAGE}/fault.py", "# TO" + "DO: later\n", "fault.py:1"),
    ("tests", "tests/test_fault.py", "def test_it():\n    assert False\n", "1 failed"),
    ("tests", f"{PACKAGE}/fault.py", '"""\n>>> 1 + 1\n3\n"""\n', "1 failed"),
]

SINGLE_FILES = (
    "errors",
    "jax_private",
    "partitioner/decide",
    "predict/energy",
    "predict/estimate",
    "predict/figures",
    "predict/levels_that_gain",
    "features/collectives/reductions",
    "program/records",
    "registry",
)
"""Files that are no folders, and that the contracts name."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small package that has nothing wrong with it, under the rules of this one."""
    for name in ("pyproject.toml", "tools/budget.toml"):
        write(tmp_path / name, (ROOT / name).read_text(encoding="utf-8"))
    rules = (tmp_path / "pyproject.toml").read_text(encoding="utf-8")
    unused = 'unmatched_ignore_imports_alerting = "none"\nignore_imports = ['
    write(tmp_path / "pyproject.toml", rules.replace("ignore_imports = [", unused))
    write(tmp_path / "tools/exceptions.toml", EXCEPTIONS)
    for folder in FOLDERS:
        write(tmp_path / folder.relative_to(ROOT) / "__init__.py", "")
    for name in SINGLE_FILES:
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


def test_every_file_of_tests_defines_a_test():
    empty = [
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if not re.search(r"^ *(def test_|class Test)", path.read_text("utf-8"), re.M)
    ]
    assert not empty


def test_a_tree_without_faults_passes_every_step(tree: Path):
    status, output = run(tree)
    assert status == 0, output


@pytest.mark.parametrize(("step", "name", "text", "words"), FAULTS)
def test_a_fault_is_caught_and_named(tree: Path, step, name, text, words):
    write(tree / name, text)
    status, output = run(tree, step)
    assert status == 1, output
    assert words in output


def test_a_feature_over_its_budget_of_code_lines_is_caught(tree: Path):
    toml = tree / "tools/budget.toml"
    text = toml.read_text(encoding="utf-8")
    write(toml, text.replace("sparse = ", "sparse = 2 # "))
    code = '"""Constants.\n\nThree."""\n\nX = 1  # one\n# two\nY = 2\nZ = 3\n'
    write(tree / PACKAGE / "features/sparse/more.py", code)
    status, output = run(tree, "budget")
    assert status == 1
    assert "sparse has 3 code lines, over its budget of 2" in output


def test_a_room_of_sixteen_files_is_caught(tree: Path):
    for number in range(16):
        write(tree / PACKAGE / f"app/file_{number}.py", "")
    status, output = run(tree, "rooms")
    assert status == 1
    assert "src/meshwright/app has 16 files" in output


def test_rooms_that_import_each_other_are_caught(tree: Path):
    write(tree / PACKAGE / "app/fault.py", "from ..run import fault\n")
    write(
        tree / PACKAGE / "run/fault.py", "def f():\n    import meshwright.app.fault\n"
    )
    status, output = run(tree, "rooms")
    assert status == 1
    assert "import each other in a circle" in output
    assert "src/meshwright/run <- src/meshwright/app" in output


def test_an_exception_with_its_reason_is_allowed(tree: Path):
    write(tree / PACKAGE / "app/fault.py", FLAGS)
    reason = '[records]\nRules = "switches of a compiler"\n'
    text = EXCEPTIONS.replace("[records]\n", reason)
    write(tree / "tools/exceptions.toml", text)
    assert run(tree, "rooms")[0] == 0


def test_one_failing_step_does_not_hide_the_next(tree: Path):
    write(tree / PACKAGE / "fault.py", "import os\nx = (1,2)\n")
    status, output = run(tree, "format", "lint", "budget")
    assert status == 1
    assert "failed: format, lint" in output


def test_an_unknown_step_lists_those_there_are(tree: Path):
    status, output = run(tree, "spelling")
    assert status == 2
    assert "no step spelling; there are format, lint" in output
