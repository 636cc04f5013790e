"""Files of a source tree, without environments and outputs, and parsed packages."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SKIPPED = {"build", "dist", "fixtures", "out"}
PACKAGE = "src/meshwright"


@dataclass(frozen=True, slots=True)
class Module:
    """A Python file of the package.

    name: dotted, `meshwright.search.loop.engine`. path: relative to the root of the tree.
    """

    name: str
    path: str
    num_lines: int
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.path.endswith("/__init__.py")

    @property
    def room(self) -> str:
        """The folder that holds the file."""
        return self.path.rpartition("/")[0]


def find_files(root: Path, *suffixes: str) -> Iterator[Path]:
    """Files below `root` with one of the suffixes, in order of their path."""
    for folder, folders, files in root.walk():
        folders[:] = sorted(
            f for f in folders if f not in SKIPPED and not f.startswith(".")
        )
        for name in sorted(files):
            if name.endswith(suffixes):
                yield folder / name


def parse_package(root: Path) -> list[Module]:
    """All modules of the package in the tree at `root`."""
    modules: list[Module] = []
    for file in find_files(root / PACKAGE, ".py"):
        text = file.read_text(encoding="utf-8")
        path = file.relative_to(root).as_posix()
        dotted = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
        name = dotted.removesuffix(".__init__")
        modules.append(Module(name, path, len(text.splitlines()), ast.parse(text)))
    return modules
