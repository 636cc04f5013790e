"""Lines that differ only in the index of a layer, told once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_INDEX = re.compile(r"((?<=[._])\d+(?!\w))")


def collapse(lines: Iterable[str]) -> list[tuple[str, int]]:
    """Lines that are equal up to indices as one, with how many they are, in order.

    An index is a component of a dotted path, or the number that ends one (`Dense_3`);
    where the lines of a group differ, `*` stands in its place.

    >>> collapse(["blocks.0.up", "blocks.0.down", "blocks.1.up"])
    [('blocks.*.up', 2), ('blocks.0.down', 1)]
    """
    groups: dict[str, list[str]] = {}
    for line in lines:
        groups.setdefault(index_free(line), []).append(line)
    return [(merge(group), len(group)) for group in groups.values()]


def index_free(line: str) -> str:
    """The line with `*` for every index: equal for the members of a group."""
    return _INDEX.sub("*", line)


def merge(lines: Sequence[str]) -> str:
    """Lines of one group as one; `*` for the indices in which they differ."""
    pieces = zip(*map(_INDEX.split, dict.fromkeys(lines)), strict=True)
    return "".join(p[0] if len(set(p)) == 1 else "*" for p in pieces)
