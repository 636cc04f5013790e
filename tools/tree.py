"""The files of a source tree, environments and outputs left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

SKIPPED = {"build", "dist", "fixtures", "out"}


def find_files(root: Path, *suffixes: str) -> Iterator[Path]:
    """Files below `root` with one of the suffixes, in order of their path."""
    for folder, folders, files in root.walk():
        folders[:] = sorted(
            f for f in folders if f not in SKIPPED and not f.startswith(".")
        )
        for name in sorted(files):
            if name.endswith(suffixes):
                yield folder / name
