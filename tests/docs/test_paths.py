"""Files that pages and docstrings name exist, so that a reader who follows them arrives."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "benchmarks", "docs", "zoo", "tools")
FILES = ["/" + p.as_posix() for f in FOLDERS for p in (ROOT / f).rglob("*.py")]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = sorted((ROOT / "src").rglob("*.py"))
PATH = re.compile(r"`((?:\w+/)*\w+\.py)`")
ELSEWHERE = {"model.py", "mlp.py", "autoparallel/optimize_sharding.py"}
"""Files of the reader, and of other projects."""


def missing(texts: Iterator[str]) -> set[str]:
    """The paths that texts name, of which no file of the repository is the end."""
    named = {path for text in texts for path in PATH.findall(text)} - ELSEWHERE
    return {p for p in named if not any(f.endswith("/" + p) for f in FILES)}


def docstrings_of(module: Path) -> Iterator[str]:
    """All docstrings of a module."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, kinds):
            yield ast.get_docstring(node) or ""


def test_a_path_without_a_file_is_found():
    assert missing(iter(["see `app/gone.py` and `app/plan.py`"])) == {"app/gone.py"}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_the_files_that_a_page_names_exist(page: Path):
    assert not missing(iter([page.read_text(encoding="utf-8")]))


def test_the_files_that_docstrings_name_exist():
    assert not missing(text for module in MODULES for text in docstrings_of(module))
