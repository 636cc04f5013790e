"""The allocation problem as flat arrays, which compiled functions read.

A section is a stretch of time during which the set of live buffers does not change. Only
sections with the most buffers matter: one whose buffers are all live in the section
before or after it is left out.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from meshwright.features.allocate.problem.buffer import Buffer
from meshwright.search.arrays import Ints


class BufferColumns(NamedTuple):
    """Buffers without fixed offset, numbered 0 to n - 1, as arrays over s sections.

    size, align, start, duration: [n] bytes, alignment, first time and lifetime.
    first, last: [n] first and last section of a buffer.
    near: buffers that are live together with each buffer; rows begin at near_at [n + 1].
    sections: sections of each buffer; rows begin at `at` [n + 1].
    of: buffers of each section; rows begin at of_at [s + 1].
    block_low, block_high: memory of fixed buffers that a buffer must not touch; rows begin
        at block_at [n + 1].
    used_low, used_high: memory of fixed buffers in each section; rows begin at used_at
        [s + 1].
    """

    size: Ints
    align: Ints
    first: Ints
    last: Ints
    start: Ints
    duration: Ints
    near_at: Ints
    near: Ints
    at: Ints
    sections: Ints
    of_at: Ints
    of: Ints
    block_at: Ints
    block_low: Ints
    block_high: Ints
    used_at: Ints
    used_low: Ints
    used_high: Ints

    def neighbours(self, buffer: int) -> list[int]:
        """The buffers that are live together with a buffer, for uncompiled code."""
        return self.near[self.near_at[buffer] : self.near_at[buffer + 1]].tolist()

    def blocks(self, buffer: int) -> list[tuple[int, int]]:
        """The memory of fixed buffers that a buffer must not touch, lowest first."""
        rows = slice(self.block_at[buffer], self.block_at[buffer + 1])
        lows, highs = self.block_low[rows].tolist(), self.block_high[rows].tolist()
        return list(zip(lows, highs, strict=True))


def columns_of(buffers: Sequence[Buffer]) -> BufferColumns:
    """The arrays of a problem; `buffers` without fixed offset keep their order."""
    free = [b for b in buffers if b.offset is None]
    fixed = [b for b in buffers if b.offset is not None and b.size]
    times, live = _sections(free)
    where: list[list[int]] = [[] for _ in free]
    for section, members in enumerate(live):
        for index in members:
            where[index].append(section)
    near: list[set[int]] = [set() for _ in free]
    for members in live:
        for index in members:
            near[index].update(members)
    blocks = [_blocks(b.spans, fixed) for b in free]
    used = [_blocks(((lower, upper),), fixed) for lower, upper in times]
    at, sections = _rows(where)
    near_at, neighbours = _rows([sorted(n - {i}) for i, n in enumerate(near)])
    of_at, of = _rows([sorted(members) for members in live])
    block_at, block_low, block_high = _pairs(blocks)
    used_at, used_low, used_high = _pairs(used)
    return BufferColumns(
        size=_ints([b.size for b in free]),
        align=_ints([b.alignment for b in free]),
        first=_ints([row[0] for row in where]),
        last=_ints([row[-1] for row in where]),
        start=_ints([b.lower for b in free]),
        duration=_ints([b.upper - b.lower for b in free]),
        near_at=near_at,
        near=neighbours,
        at=at,
        sections=sections,
        of_at=of_at,
        of=of,
        block_at=block_at,
        block_low=block_low,
        block_high=block_high,
        used_at=used_at,
        used_low=used_low,
        used_high=used_high,
    )


def _sections(
    free: Sequence[Buffer],
) -> tuple[list[tuple[int, int]], list[frozenset[int]]]:
    """Times and live buffers of each section, without sections contained in neighbours."""
    events: dict[int, tuple[list[int], list[int]]] = {}
    for index, buffer in enumerate(free):
        for lower, upper in buffer.spans:
            events.setdefault(lower, ([], []))[0].append(index)
            events.setdefault(upper, ([], []))[1].append(index)
    times: list[tuple[int, int]] = []
    sets: list[frozenset[int]] = []
    live: set[int] = set()
    moments = sorted(events)
    for time, after in pairwise(moments):
        starts, ends = events[time]
        live.difference_update(ends)
        live.update(starts)
        if not live:
            continue
        while sets and sets[-1] <= live:
            times.pop()
            sets.pop()
        if not (sets and live <= sets[-1]):
            times.append((time, after))
            sets.append(frozenset(live))
    return times, sets


def _blocks(
    spans: Sequence[tuple[int, int]], fixed: Sequence[Buffer]
) -> list[tuple[int, int]]:
    """The memory that fixed buffers use at some time in `spans`, as ranges in order."""
    met = sorted(
        (b.offset, b.offset + b.size)
        for b in fixed
        if b.offset is not None
        and any(x < v and u < y for x, y in spans for u, v in b.spans)
    )
    merged: list[tuple[int, int]] = []
    for low, high in met:
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return merged


def _rows(rows: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    return (
        np.cumsum([0, *map(len, rows)]).astype(np.int64),
        _ints([value for row in rows for value in row]),
    )


def _pairs(rows: Sequence[Sequence[tuple[int, int]]]) -> tuple[Ints, Ints, Ints]:
    at, low = _rows([[pair[0] for pair in row] for row in rows])
    return at, low, _rows([[pair[1] for pair in row] for row in rows])[1]


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)
