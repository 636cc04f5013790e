"""Merging lines of text that differ only in an index, such as that of a layer."""

import re
from collections.abc import Callable, Hashable, Iterable, Sequence

_INDEX = re.compile(r"((?<=[._])\d+(?!\w))")


def collapse(lines: Iterable[str]) -> list[tuple[str, int]]:
    """Merge lines that differ only in indices; pairs of the merged line and its count.

    An index is a numeric component of a dotted path, or the number at its end (`Dense_3`).
    The merged line has `*` in place of each index in which the lines differ.

    >>> collapse(["blocks.0.up", "blocks.0.down", "blocks.1.up"])
    [('blocks.*.up', 2), ('blocks.0.down', 1)]
    """
    groups = group_by(lines, index_free)
    return [(merge(group), len(group)) for group in groups.values()]


def collapsed(lines: Iterable[str]) -> list[str]:
    """Merge lines that differ only in indices, such as those of layers.

    A line that stands for several ends with their number: `blocks.*.up  (x2)`.
    """
    return [counted(line, count) for line, count in collapse(lines)]


def counted(line: str, count: int) -> str:
    """The line, followed by a count of more than one: `blocks.*.up  (x2)`."""
    return f"{line}  (x{count})" if count > 1 else line


def group_by[T, K: Hashable](
    items: Iterable[T], key_fn: Callable[[T], K]
) -> dict[K, list[T]]:
    """The items grouped by a key; keys and items keep the order of first occurrence."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key_fn(item), []).append(item)
    return groups


def index_free(line: str) -> str:
    """The line with `*` in place of every index.

    Lines that `collapse` merges give the same text.
    """
    return _INDEX.sub("*", line)


def merge(lines: Sequence[str]) -> str:
    """One line for lines that differ only in indices.

    It has `*` in place of each index in which the lines differ.
    """
    pieces = zip(*map(_INDEX.split, dict.fromkeys(lines)), strict=True)
    return "".join(p[0] if len(set(p)) == 1 else "*" for p in pieces)
