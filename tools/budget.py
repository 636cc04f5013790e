"""Lines per folder against `tools/budget.toml`: `python tools/budget.py`.

All lines count, blank ones too. Exit status 1 if a folder or a file is over its limit,
or if a folder of the package has no budget.
"""

from __future__ import annotations

import sys
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from tree import find_files

PACKAGE = "src/meshwright"


def count_lines(root: Path) -> dict[str, int]:
    """Lines of each Python file, by its path below `root`."""
    return {
        path.relative_to(root).as_posix(): len(path.read_text("utf-8").splitlines())
        for path in find_files(root, ".py")
    }


def folder_of(name: str) -> str:
    """The folder that a file counts for: `src/meshwright/program`, or its first one."""
    parts = name.split("/")[:-1]
    return "/".join(parts[:3] if name.startswith(f"{PACKAGE}/") else parts[:1]) or "."


def find_faults(lines: Mapping[str, int], budget: Mapping[str, object]) -> list[str]:
    """One sentence per file or folder that is over its limit or has none."""
    limits = budget["folders"]
    assert isinstance(limits, dict), "budget.toml has no table [folders]"
    limit = budget["file_limit"]
    assert isinstance(limit, int), "file_limit is not a number"
    faults = [
        f"{name} has {n} lines, over the {limit} of a file: cut it by family"
        for name, n in lines.items()
        if n > limit
    ]
    for folder, n in sum_folders(lines).items():
        if folder in limits and n > limits[folder]:
            faults.append(
                f"{folder} has {n} lines, over its budget of {limits[folder]}"
            )
        elif folder not in limits and folder.startswith(PACKAGE):
            faults.append(f"{folder} has no budget in tools/budget.toml")
    return faults


def sum_folders(lines: Mapping[str, int]) -> dict[str, int]:
    """Lines by folder."""
    sums: defaultdict[str, int] = defaultdict(int)
    for name, n in lines.items():
        sums[folder_of(name)] += n
    return dict(sorted(sums.items()))


def main(root: Path) -> int:
    """Print the table and the faults of the tree at `root`; 1 if there are faults."""
    budget = tomllib.loads((root / "tools/budget.toml").read_text(encoding="utf-8"))
    lines = count_lines(root)
    for folder, n in sum_folders(lines).items():
        print(f"{n:7} of {budget['folders'].get(folder, '-'):>6}  {folder}")
    for name, n in lines.items():
        if n > budget["file_listed"]:
            print(f"{n:7}  {name} asks for a reason")
    faults = find_faults(lines, budget)
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
