"""Peak of live bytes when a program runs as it is written, op by op."""

from __future__ import annotations

from collections.abc import Collection

from meshwright.program.analysis.live_ranges import (
    BufferInterval,
    live_bytes,
    live_ranges,
)
from meshwright.program.ir import Op, Program, Value, num_bytes


def peak_bytes(program: Program, reused: Collection[int] = ()) -> int:
    """The largest number of bytes that are live at once, arguments and results included.

    Ops run one at a time, in their order. Each writes its results to new memory, and a
    value dies after its last reader. No fusion is assumed, so that a compiled program
    needs less.

    reused: positions of inputs whose memory the caller gives up; other inputs stay.
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
    """Bytes that the largest body of a region needs beyond those alive outside of it.

    A slice of a scanned array takes new memory; all other inputs are the operands.
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
