"""Merging of lines that differ only in the index of a layer."""

import re
from collections.abc import Callable, Hashable, Iterable, Sequence

_INDEX = re.compile(r"((?<=[._])\d+(?!\w))")


def collapse(lines: Iterable[str]) -> list[tuple[str, int]]:
    """Groups of lines that are equal except for indices: the merged line and its count.

    An index is a component of a dotted path, or the number at its end (`Dense_3`). If
    the lines of a group differ in an index, the merged line has `*` in its place.

    >>> collapse(["blocks.0.up", "blocks.0.down", "blocks.1.up"])
    [('blocks.*.up', 2), ('blocks.0.down', 1)]
    """
    groups = group_by(lines, index_free)
    return [(merge(group), len(group)) for group in groups.values()]


def collapsed(lines: Iterable[str]) -> list[str]:
    """The merged line of each group, followed by the number of its lines."""
    return [counted(line, count) for line, count in collapse(lines)]


def counted(line: str, count: int) -> str:
    """The line, and its count if that is more than one: `blocks.*.up  (x2)`."""
    return f"{line}  (x{count})" if count > 1 else line


def group_by[T, K: Hashable](
    items: Iterable[T], key_fn: Callable[[T], K]
) -> dict[K, list[T]]:
    """The items by key; keys and items are in the order in which they first occur."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key_fn(item), []).append(item)
    return groups


def index_free(line: str) -> str:
    """The line with `*` for every index, which is equal for all lines of a group."""
    return _INDEX.sub("*", line)


def merge(lines: Sequence[str]) -> str:
    """The merged line of a group, with `*` for the indices in which its lines differ."""
    pieces = zip(*map(_INDEX.split, dict.fromkeys(lines)), strict=True)
    return "".join(p[0] if len(set(p)) == 1 else "*" for p in pieces)
