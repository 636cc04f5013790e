"""The Python of the pages and of the notebooks runs as it stands.

The blocks of one page are run in order, in one namespace and in an empty folder.
"""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXCERPTS = ("docs/autoplan.md", "docs/extending.md")
"""Pages whose blocks are excerpts of code that stands elsewhere."""


def blocks_of(text: str) -> list[tuple[int, str]]:
    """Python blocks of a page, each with the number of lines before it."""
    return [
        (text[: found.start(2)].count("\n"), found[2])
        for found in FENCE.finditer(text)
        if found[1] == "python"
    ]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def cases(pages: list[Path]) -> list:
    """One case for each page; those that search for a plan take longer than a second."""
    return [
        pytest.param(
            page,
            id=name_of(page),
            marks=[pytest.mark.slow] if "autoplan(" in page.read_text("utf-8") else [],
        )
        for page in pages
    ]


WITH_CODE = [
    page
    for page in PAGES
    if blocks_of(page.read_text(encoding="utf-8")) and name_of(page) not in EXCERPTS
]


@pytest.mark.parametrize("page", cases(WITH_CODE))
def test_the_python_of_a_page_runs(page: Path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for line, code in blocks_of(page.read_text(encoding="utf-8")):
        exec(compile("\n" * line + code, str(page), "exec"), names)


def test_the_first_example_of_the_readme_prints_what_it_shows(capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, code = blocks_of(text)[0]
    exec(compile(code, "README.md", "exec"), {"__name__": "page"})
    (shown,) = (found[2] for found in FENCE.finditer(text) if found[1] == "text")
    assert shown in capsys.readouterr().out


def code_cells(notebook: Path) -> list[dict]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("notebook", cases(NOTEBOOKS))
def test_the_cells_of_a_notebook_run(notebook: Path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "notebook"}
    for number, cell in enumerate(code_cells(notebook)):
        code = "".join(cell["source"])
        exec(compile(code, f"{notebook.name}[{number}]", "exec"), names)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name_of)
def test_a_notebook_stores_no_outputs_that_could_be_out_of_date(notebook: Path):
    assert [cell["outputs"] for cell in code_cells(notebook) if cell["outputs"]] == []


def test_there_are_two_notebooks_and_a_page_for_each_task():
    assert len(NOTEBOOKS) >= 2
    tasks = {page.stem for page in WITH_CODE if page.parent.name == "howto"}
    assert {"one_host", "several_hosts", "accumulate", "checkpoint"} <= tasks
