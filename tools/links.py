"""Relative links in Markdown files must lead somewhere: `python tools/links.py`.

Also finds every open end in Markdown and Python that names no issue.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tree import find_files

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
WORD = "TO" + "DO"
OPEN_END = re.compile(rf"\b{WORD}\b(?!\(#\d+\))")


def find_faults(path: Path, root: Path) -> Iterator[str]:
    """One sentence per broken link and per open end in a file."""
    name = path.relative_to(root).as_posix()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if OPEN_END.search(line):
            yield f"{name}:{number}: {WORD} without an issue number, {WORD}(#7)"
        for target in LINK.findall(line) if path.suffix == ".md" else ():
            if ":" not in target and not (path.parent / target).exists():
                yield f"{name}:{number}: link to {target}, which does not exist"


def main(root: Path) -> int:
    """Print the faults of the tree at `root`; 1 if there are any."""
    paths = find_files(root, ".md", ".py")
    faults = [fault for path in paths for fault in find_faults(path, root)]
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
