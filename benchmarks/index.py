"""Areas and scripts of this folder, read from the files without importing them."""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks import places


@dataclass(frozen=True, slots=True)
class Script:
    """One benchmark: its area, its name, and the first line of its docstring."""

    area: str
    name: str
    summary: str

    @property
    def module(self) -> str:
        """The module that runs it."""
        return f"benchmarks.{self.area}.{self.name}"


@cache
def areas() -> dict[str, str]:
    """First docstring line of each area, by its folder's name."""
    folders = sorted(path.parent for path in places.HERE.glob("*/__init__.py"))
    return {
        folder.name: _summary(folder / "__init__.py")
        for folder in folders
        if any(map(is_script, folder.glob("*.py")))
    }


def scripts_of(area: str) -> tuple[Script, ...]:
    """Scripts of an area in the order of their names; modules without `main` are none."""
    return tuple(
        Script(area, path.stem, _summary(path))
        for path in sorted((places.HERE / area).glob("*.py"))
        if is_script(path)
    )


def is_script(path: Path) -> bool:
    """Whether a module has a `main` that takes the shared arguments."""
    return any(
        isinstance(node, ast.FunctionDef)
        and node.name == "main"
        and any(map(_is_benchmark, node.decorator_list))
        for node in _tree(path).body
    )


def _is_benchmark(decorator: ast.expr) -> bool:
    return (
        isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Name)
        and decorator.func.id == "benchmark"
    )


def _summary(path: Path) -> str:
    return (ast.get_docstring(_tree(path)) or "").partition("\n")[0]


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
