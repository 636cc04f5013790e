"""Bytes alive at once when a program runs as it is written, op by op."""

from __future__ import annotations

from collections.abc import Collection

from meshwright.program.ir import Op, Program, Value, num_bytes


def peak_bytes(program: Program, reused: Collection[int] = ()) -> int:
    """The largest number of bytes alive at once, arguments and results included.

    Ops run in their order, one at a time, each makes its results in new memory, and a
    value dies after its last reader. No compiler's fusion is counted on, so that a
    compiled program needs less.

    reused: positions of inputs whose memory the caller gives up; other inputs stay.
    """
    given = {v for i, v in enumerate(program.inputs) if i in reused}
    kept = {v for v in program.inputs if v not in given} | set(program.constants)
    kept |= {v for v in program.outputs if isinstance(v, Value)}
    last = _last_readers(program)
    alive = sum(num_bytes(v) for v in {*program.inputs, *program.constants})
    peak = alive
    for index, op in enumerate(program.ops):
        made = sum(num_bytes(r) for r in op.results)
        alive += made
        peak = max(peak, alive + _inner_bytes(op))
        ends = {v for v in (*op.operands, *op.results) if isinstance(v, Value)}
        alive -= sum(num_bytes(v) for v in ends - kept if last.get(v, index) == index)
    return max(peak, alive)


def _inner_bytes(op: Op) -> int:
    """What the largest body of a region needs beside what is alive outside already.

    A slice of a scanned array is new memory; all other inputs are the operands.
    """
    shared = {
        place for wire in op.wires if not wire.is_stacked for place in wire.inputs
    }
    largest = 0
    for index, body in enumerate(op.bodies):
        outside = sum(
            num_bytes(v) for i, v in enumerate(body.inputs) if (index, i) in shared
        )
        peak = peak_bytes(body, range(len(body.inputs)))
        largest = max(largest, peak - outside)
    return largest


def _last_readers(program: Program) -> dict[Value, int]:
    """Per value the position of the last op that reads it."""
    return {
        operand: index
        for index, op in enumerate(program.ops)
        for operand in op.operands
        if isinstance(operand, Value)
    }
