"""Live ranges: when each value of a sequence of steps is defined and used.

A step is an op of a program, a fusion of a compiler, or a moment inside a loop. Every
analysis of memory reads the ranges that are computed here and turns them into bytes with
`live_bytes`, so that all analyses agree on which values are live at a step. `peak_bytes`
is the simplest of these analyses.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from meshwright.program.ir import Atom, Op, Program, Value, num_bytes

type Uses = tuple[Iterable[Atom], Iterable[Value]]
"""The atoms that one step reads, and the values that it writes."""


class BufferInterval(NamedTuple):
    """Bytes that are live from step `start` to step `end`, both included.

    The name is that of XLA's heap simulator (`xla/service/heap_simulator`).
    """

    size: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class LiveRanges:
    """Positions in a sequence of steps at which each value is defined and used.

    definitions: position of the step that writes each value; a value is written once.
    first_uses, last_uses: positions of the first and the last step that read each
        value.
    num_steps: length of the sequence.
    """

    definitions: Mapping[Value, int]
    first_uses: Mapping[Atom, int]
    last_uses: Mapping[Atom, int]
    num_steps: int

    def end(self, value: Value) -> int:
        """Position of the last step at which a value is needed.

        A value without a reader is live only at the step that computes it.
        """
        last_use = self.last_uses.get(value)
        return self.definitions[value] if last_use is None else last_use


def live_ranges(steps: Iterable[Uses]) -> LiveRanges:
    """The live ranges of all values that the steps read or write, in their order."""
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
    """Bytes that are live during each step, [num_steps].

    An interval that extends beyond the last step is cut off there.
    """
    changes = [0] * (num_steps + 2)
    for size, start, end in intervals:
        changes[start] += size
        changes[min(end, num_steps) + 1] -= size
    return [*accumulate(changes[:num_steps])]


def peak_bytes(program: Program, reused: Collection[int] = ()) -> int:
    """The largest number of bytes that are live at once, inputs and outputs included.

    Ops run one at a time, in their order. Each writes its results to new memory, and a
    value dies after its last reader. No fusion is assumed, so that a compiled program
    needs less.

    reused: positions of inputs whose memory the caller donates; other inputs stay live.
    """
    ranges = live_ranges((op.operands, op.results) for op in program.ops)
    num_steps = ranges.num_steps
    held = {*program.inputs, *program.constants}
    kept = held - {v for i, v in enumerate(program.inputs) if i in reused}
    kept |= {v for v in program.outputs if isinstance(v, Value)}
    starts = {**ranges.definitions, **dict.fromkeys(held, 0)}
    # An input that no op reads stays, since it has no last reader.
    ends = {**starts, **dict.fromkeys(held, num_steps), **ranges.last_uses}
    ends |= dict.fromkeys(kept, num_steps)
    live = live_bytes(
        (BufferInterval(num_bytes(v), start, ends[v]) for v, start in starts.items()),
        num_steps,
    )
    return max(
        (alive + _inner_bytes(op) for alive, op in zip(live, program.ops, strict=True)),
        default=sum(map(num_bytes, held)),
    )


def _inner_bytes(op: Op) -> int:
    """Bytes that the largest body of a region op needs beyond those live outside.

    A region op is a loop, branch or remat. A slice of a scanned array takes new memory;
    all other inputs of a body are the op's operands.
    """
    shared = {each for wire in op.wires if not wire.is_stacked for each in wire.inputs}
    largest = 0
    for index, body in enumerate(op.bodies):
        outside = sum(
            num_bytes(v) for i, v in enumerate(body.inputs) if (index, i) in shared
        )
        peak = peak_bytes(body, range(len(body.inputs)))
        largest = max(largest, peak - outside)
    return largest
