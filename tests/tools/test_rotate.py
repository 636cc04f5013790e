"""Rotation of slow test files through CI: each is due in one of three runs."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = [f"tests/zoo/test_{name}.py" for name in ("gpt", "t5", "unet", "moe", "vit")]


@pytest.fixture
def rotate(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    monkeypatch.syspath_prepend(ROOT / "tools")
    import rotate

    yield rotate
    del sys.modules["rotate"]


@pytest.mark.parametrize("first", [0, 1, 2, 396])
def test_each_file_is_due_in_exactly_one_of_three_runs(rotate, first):
    due = [rotate.select(FILES, run)[0] for run in range(first, first + 3)]
    assert sorted(file for files in due for file in files) == sorted(FILES)


def test_a_file_is_due_after_the_runs_that_it_waits(rotate):
    for wait, files in rotate.select(FILES, 7).items():
        assert set(files) <= set(rotate.select(FILES, 7 + wait)[0])


def test_a_new_file_changes_nothing_for_the_others(rotate):
    more = rotate.select([*FILES, "tests/zoo/test_new.py"], 5)
    kept = {w: [f for f in files if f in FILES] for w, files in more.items()}
    assert kept == rotate.select(FILES, 5)


def test_the_slow_files_of_the_project_divide_evenly(rotate):
    """Change `SALT` if they no longer do."""
    slow = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if "mark.slow" in path.read_text(encoding="utf-8")
    ]
    sizes = [len(files) for files in rotate.select(slow, 0).values()]
    assert max(sizes) < 1.5 * len(slow) / rotate.EVERY


def test_each_file_of_a_group_comes_first_in_some_run(rotate):
    firsts = {rotate.begin_elsewhere(FILES, run)[0] for run in range(0, 15, 3)}
    assert firsts == set(FILES)
    assert rotate.begin_elsewhere([], 5) == []
