"""Cut points of rematerialization: program points with nearly one live value only.

A value that is kept there ends every chain of recomputation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from meshwright.program.analysis.live_ranges import live_ranges
from meshwright.program.ir import Op, Value

_NEARLY_ALL = 1.25
"""At a cut point all live bytes together are at most so many times those of one value."""


class ValueSizes(Protocol):
    """Bytes of values under a plan."""

    def num_bytes(self, value: Value) -> float:
        """Bytes of one device's part."""
        ...

    def is_stored(self, value: Value) -> bool:
        """Whether some fusion writes the value to memory."""
        ...


class _CutPoint(NamedTuple):
    """An op whose result is nearly all that later ops read of earlier results.

    stored_bytes: of all results up to there. num_bytes: of its result.
    """

    stored_bytes: float
    num_bytes: float
    op: Op

    def is_far(self, start_bytes: float, spacing: float) -> bool:
        """Whether the point is far enough from the last one, to be worth keeping.

        A value of half of all bytes since the last point saves little.
        """
        return self.stored_bytes - start_bytes >= max(spacing, 2 * self.num_bytes)


def cut_points(ops: Sequence[Op], sizes: ValueSizes, spacing: float) -> Iterator[Op]:
    """Ops at cut points about `spacing` stored bytes apart.

    Each is the smallest of those within another `spacing`. The rest at the end gets none:
    the smallest point of its layer may lie behind it.
    """
    start_bytes, window = 0.0, list[_CutPoint]()
    for point in _all_cut_points(ops, sizes):
        if window and point.stored_bytes - window[0].stored_bytes > spacing:
            smallest = min(window, key=lambda each: each.num_bytes)
            yield smallest.op
            start_bytes = smallest.stored_bytes
            window = [each for each in window if each.is_far(start_bytes, spacing)]
        if point.is_far(start_bytes, spacing):
            window.append(point)


def _all_cut_points(ops: Sequence[Op], sizes: ValueSizes) -> Iterator[_CutPoint]:
    ranges = live_ranges((op.operands, op.results) for op in ops)
    live: dict[Value, float] = {}
    ends: dict[int, list[Value]] = {}
    stored_bytes = 0.0
    for index, op in enumerate(ops):
        for result in op.results:
            size = sizes.num_bytes(result)
            stored_bytes += size if sizes.is_stored(result) else 0.0
            if ranges.end(result) > index:
                live[result] = size
                ends.setdefault(ranges.end(result), []).append(result)
        for value in ends.pop(index, ()):
            live.pop(value, None)
        if not op.results or op.results[0] not in live:
            continue
        size = live[op.results[0]]
        if sizes.is_stored(op.results[0]) and sum(live.values()) <= _NEARLY_ALL * size:
            yield _CutPoint(stored_bytes, size, op)
