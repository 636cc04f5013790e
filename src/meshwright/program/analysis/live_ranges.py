"""Live ranges: when each value of a sequence of steps is defined and used.

A step is an op of a program, a fusion of a compiler, or a moment inside a loop. Every
analysis of memory reads the ranges that are computed here and turns them into bytes with
`live_bytes`, so that all analyses agree on which values are live at a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from meshwright.program.ir import Atom, Value

type Uses = tuple[Iterable[Atom], Iterable[Value]]
"""Atoms that a step reads, and values that it writes."""


class BufferInterval(NamedTuple):
    """Bytes that are live from step `start` to step `end`, both included.

    The name is that of XLA's heap simulator (`xla/service/heap_simulator`).
    """

    size: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class LiveRanges:
    """Positions of the steps that define and use each value.

    definitions: by value, the step that writes it; steps write each value once.
    first_uses, last_uses: by value that is read, the first and the last reader.
    num_steps: length of the sequence.
    """

    definitions: Mapping[Value, int]
    first_uses: Mapping[Atom, int]
    last_uses: Mapping[Atom, int]
    num_steps: int

    def end(self, value: Value) -> int:
        """Position of the last step that needs a value of the sequence.

        A value that nobody reads is live during its definition alone.
        """
        last_use = self.last_uses.get(value)
        return self.definitions[value] if last_use is None else last_use


def live_ranges(steps: Iterable[Uses]) -> LiveRanges:
    """The live ranges of all values that `steps` read or write, in their order."""
    definitions: dict[Value, int] = {}
    first_uses: dict[Atom, int] = {}
    last_uses: dict[Atom, int] = {}
    num_steps = 0
    for index, (reads, writes) in enumerate(steps):
        num_steps = index + 1
        for value in reads:
            if value not in last_uses:
                first_uses[value] = index
            last_uses[value] = index
        for value in writes:
            definitions[value] = index
    return LiveRanges(definitions, first_uses, last_uses, num_steps)


def live_bytes(intervals: Iterable[BufferInterval], num_steps: int) -> list[int]:
    """Bytes that are live during each step, [num_steps]; later steps are left out."""
    changes = [0] * (num_steps + 2)
    for size, start, end in intervals:
        changes[start] += size
        changes[min(end, num_steps) + 1] -= size
    return [*accumulate(changes[:num_steps])]
