"""Merging of lines that differ only in the index of a layer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_INDEX = re.compile(r"((?<=[._])\d+(?!\w))")


def collapse(lines: Iterable[str]) -> list[tuple[str, int]]:
    """Groups of lines that are equal up to indices: the merged line and its count.

    An index is a component of a dotted path, or the number at its end (`Dense_3`). If the
    lines of a group differ in an index, the merged line has `*` instead.

    >>> collapse(["blocks.0.up", "blocks.0.down", "blocks.1.up"])
    [('blocks.*.up', 2), ('blocks.0.down', 1)]
    """
    groups: dict[str, list[str]] = {}
    for line in lines:
        groups.setdefault(index_free(line), []).append(line)
    return [(merge(group), len(group)) for group in groups.values()]


def index_free(line: str) -> str:
    """The line with `*` for every index, which is the same for all lines of a group."""
    return _INDEX.sub("*", line)


def merge(lines: Sequence[str]) -> str:
    """The merged line of a group, with `*` for the indices in which its lines differ."""
    pieces = zip(*map(_INDEX.split, dict.fromkeys(lines)), strict=True)
    return "".join(p[0] if len(set(p)) == 1 else "*" for p in pieces)
