"""Assignment of a device program's ops to loops in time, for a sequential axis.

An op that depends on the position along the axis runs in a loop. A collective along the
axis, a *crossing*, needs all iterations of the loop that computes its operand; ops that
depend on its result run behind that loop. All other ops run once. If ops have a choice
of loops, all run in their earliest or all in their latest, whichever keeps fewer bytes
from one loop for another.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.partitioner.lower.time_crossings import is_crossing
from meshwright.program.ir import Atom, Op, Program, Value, num_bytes


@dataclass(frozen=True, slots=True)
class Stages:
    """The assignment of ops to loops, which are numbered from 0 in order of execution.

    loop: for each op in a loop, the loop's number; for each crossing (a collective over
        all iterations), the number of the loop that computes its operand.
    outside: for each other op, the number of loops that run before it.
    """

    num_loops: int
    loop: Mapping[Op, int]
    outside: Mapping[Op, int]


def find_stages(program: Program, axis: str) -> Stages:
    """Assign ops to loops in time; no collective along `axis` may name other axes."""
    looped = looped_ops(program, axis)
    first = _first_stages(program, {}, axis)
    early = {op: n for op, n in first.items() if op in looped or is_crossing(op, axis)}
    num_loops = 1 + max(early.values(), default=-1)
    late = _late(program, looped, early, num_loops, axis)
    loop = min(early, late, key=lambda loop: kept_bytes(program, loop, axis))
    loop = {op: loop[op] for op in program.ops if op in loop}
    stages = _first_stages(program, loop, axis)
    outside = {op: stage for op, stage in stages.items() if op not in loop}
    return Stages(num_loops, loop, outside)


def reads_position(op: Op, axis: str) -> bool:
    """Whether an op, or an op of its bodies, reads its position along the axis."""
    if op.kind in ("axis_index", "all_slice"):
        axes = op.params["axes"]
        return isinstance(axes, tuple) and axis in axes
    return any(reads_position(inner, axis) for body in op.bodies for inner in body.ops)


def looped_ops(program: Program, axis: str) -> frozenset[Op]:
    """The ops that depend on the position along the axis, and so run in a loop."""
    found: set[Op] = set()
    values: set[Atom] = set()
    for op in program.ops:
        if is_crossing(op, axis):
            continue
        if reads_position(op, axis) or not values.isdisjoint(op.operands):
            found.add(op)
            values.update(op.results)
    return frozenset(found)


def _first_stages(program: Program, loop: Mapping[Op, int], axis: str) -> dict[Op, int]:
    """The number of loops that must run before each op, or before its own loop.

    loop: the loops of ops for which they are decided.
    """
    stages: dict[Op, int] = {}
    ready: dict[Atom, int] = {}
    for op in program.ops:
        first = max((ready.get(atom, 0) for atom in op.operands), default=0)
        stages[op] = loop.get(op, first)
        ready.update(dict.fromkeys(op.results, stages[op] + is_crossing(op, axis)))
    return stages


def _late(
    program: Program,
    looped: frozenset[Op],
    early: Mapping[Op, int],
    num_loops: int,
    axis: str,
) -> dict[Op, int]:
    """The latest possible loop of each op that runs in one; effects stay early."""
    loop: dict[Op, int] = {}
    needed: dict[Atom, int] = {}
    for op in reversed(program.ops):
        stage = min((needed.get(r, num_loops) for r in op.results), default=num_loops)
        if is_crossing(op, axis):
            stage = loop[op] = stage - 1
        elif op in looped:
            is_read = any(r in needed for r in op.results)
            stage = loop[op] = stage if is_read and not op.has_effect else early[op]
        for atom in op.operands:
            needed[atom] = min(needed.get(atom, num_loops), stage)
    return loop


def kept_bytes(program: Program, loop: Mapping[Op, int], axis: str) -> int:
    """Bytes per iteration of values that one loop computes and a later one reads."""
    made: dict[Value, int] = {}
    kept: set[Value] = set()
    for op in program.ops:
        if op not in loop:
            continue
        for atom in op.operands:
            if isinstance(atom, Value) and made.get(atom, loop[op]) != loop[op]:
                kept.add(atom)
        if not is_crossing(op, axis):
            made.update(dict.fromkeys(op.results, loop[op]))
    return sum(map(num_bytes, kept))
