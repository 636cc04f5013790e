"""Code lines of the core and of each feature against `tools/budget.toml`.

Run `python tools/budget.py`. A code line holds code: blank lines, comments and docstrings
do not count, so that explaining is free. Exit status 1 if a part or a file is over its
limit, or if a feature has no budget.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tree import PACKAGE, find_files

NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip


def count_code(text: str) -> int:
    """Lines of a Python text that hold code."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            documented.update(range(first.lineno, (first.end_lineno or 0) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


def part_of(name: str) -> str:
    """The part of the tree that a file counts for: core, a feature, or its first folder.

    >>> part_of("src/meshwright/program/ir/values.py")
    'core'
    >>> part_of("src/meshwright/features/sparse/jit.py")
    'sparse'
    """
    parts = name.removeprefix(f"{PACKAGE}/").split("/")
    if not name.startswith(f"{PACKAGE}/"):
        return parts[0]
    return parts[1] if parts[0] == "features" and len(parts) > 2 else "core"


def find_faults(
    lengths: Mapping[str, int], code: Mapping[str, int], budget: Mapping[str, int]
) -> list[str]:
    """One sentence per file or part that is over its limit, or that has none.

    lengths: all lines of each file. code: code lines of each part of the tree.
    """
    limit = budget["file_limit"]
    faults = [
        f"{name} has {n} lines, over the {limit} of a file: cut it by family"
        for name, n in lengths.items()
        if n > limit
    ]
    for part, n in code.items():
        if part not in budget:
            faults.append(f"{part} has no budget in tools/budget.toml")
        elif n > budget[part]:
            faults.append(
                f"{part} has {n} code lines, over its budget of {budget[part]}"
            )
    return faults


def main(root: Path) -> int:
    """Print the table and the faults of the tree at `root`; 1 if there are faults."""
    text = (root / "tools/budget.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    budget = {**tables["files"], **tables["code_lines"]}
    lengths: dict[str, int] = {}
    code: Counter[str] = Counter()
    for path in find_files(root, ".py"):
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(root).as_posix()
        lengths[name] = len(text.splitlines())
        if name.startswith((f"{PACKAGE}/", "tools/")):
            code[part_of(name)] += count_code(text)
    for part, n in sorted(code.items()):
        print(f"{n:7} of {budget.get(part, '-'):>6}  {part}")
    for name, n in lengths.items():
        if n > budget["file_listed"]:
            print(f"{n:7}  {name} asks for a reason")
    faults = find_faults(lengths, code, budget)
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
