"""Rooms that are too large or import each other, records of flags: `python tools/rooms.py`.

A room is a folder of the package with Python files of its own. A record of flags is a
class with more than three boolean fields: name the cases, or pass functions. Exit status 1
if there are faults beyond `tools/exceptions.toml`.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tree import PACKAGE, Module, parse_package

MAX_FILES = 15
MAX_LINES = 2500
MAX_FLAGS = 3


def find_large(modules: Sequence[Module], allowed: Mapping[str, str]) -> list[str]:
    """One line per room of too many files, `__init__.py` not counted, or lines."""
    files: defaultdict[str, int] = defaultdict(int)
    lines: defaultdict[str, int] = defaultdict(int)
    for module in modules:
        files[module.room] += not module.is_package
        lines[module.room] += module.num_lines
    return [
        f"{room} has {files[room]} files and {lines[room]} lines, over the {MAX_FILES}"
        f" files or {MAX_LINES} lines of a room: cut it in two"
        for room in sorted(files)
        if (files[room] > MAX_FILES or lines[room] > MAX_LINES) and room not in allowed
    ]


def find_circle(modules: Sequence[Module]) -> list[str]:
    """One line that names a circle of rooms that import each other, if there is any.

    Imports from files directly in the package, such as its errors, do not count.
    """
    rooms = {module.name: module.room for module in modules}
    graph: dict[str, set[str]] = {room: set() for room in rooms.values()}
    for module in modules:
        targets = {rooms[name] for name in find_imports(module, rooms)}
        graph[module.room] |= targets - {module.room, PACKAGE}
    graph.pop(PACKAGE, None)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [f"rooms import each other in a circle: {' <- '.join(error.args[1])}"]
    return []


def find_imports(module: Module, known: Mapping[str, str]) -> Iterator[str]:
    """Modules of the package that a module imports, at any depth of its code."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = module.name.split(".")
            levels = node.level - module.is_package
            base = ".".join(parents[: len(parents) - levels]) if node.level else ""
            base = ".".join(part for part in (base, node.module) if part)
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            while name and name not in known:
                name = name.rpartition(".")[0]
            if name:
                yield name


def find_flags(modules: Sequence[Module], allowed: Mapping[str, str]) -> list[str]:
    """One line per class with more than three boolean fields."""
    faults: list[str] = []
    for module in modules:
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.ClassDef) or node.name in allowed:
                continue
            fields = [s.annotation for s in node.body if isinstance(s, ast.AnnAssign)]
            flags = sum(isinstance(f, ast.Name) and f.id == "bool" for f in fields)
            if flags > MAX_FLAGS:
                faults.append(
                    f"{module.path}:{node.lineno}: {node.name} has {flags} boolean"
                    f" fields, over {MAX_FLAGS}: use an enum, or pass functions"
                )
    return faults


def main(root: Path) -> int:
    """Print the faults of the tree at `root`; 1 if there are any."""
    text = (root / "tools/exceptions.toml").read_text(encoding="utf-8")
    allowed = tomllib.loads(text)
    modules = parse_package(root)
    faults = [
        *find_large(modules, allowed["rooms"]),
        *find_circle(modules),
        *find_flags(modules, allowed["records"]),
    ]
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
