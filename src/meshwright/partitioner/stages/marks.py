"""Marks of pipeline stages, written into a captured program where a plan begins them.

A stage begins at an op, or at an iteration of a loop over layers, which is unrolled
then. The mark is the same tag op that a user's `mw.stage` writes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from meshwright.errors import StageError
from meshwright.partitioner.stages.cuts import MARK
from meshwright.program.ir import Atom, Op, Program, Value, num_bytes


@dataclass(frozen=True, slots=True)
class StagePoint:
    """The op of a captured program at which a pipeline stage begins.

    op: its position in the program. iteration: the loop iteration, if it is a loop over
        layers.
    """

    op: int
    iteration: int = 0


def mark_op(name: str, value: Atom) -> Op:
    """A tag op that marks the start of a stage; it returns `value` under a new name."""
    result = Value(value.shape, value.dtype)
    return Op("tag", (value,), (result,), {"name": f"{MARK}{name}"})


def names_of(points: Sequence[StagePoint]) -> Mapping[StagePoint, str]:
    """The names of the stages that begin at points: "1", "2" and so on.

    Stage "0" begins at the start of the program.
    """
    return {point: str(number) for number, point in enumerate(points, 1)}


def marks_between(at: Mapping[int, str]) -> Callable[[int, Atom], Op | None]:
    """A function that gives the mark before an iteration of an unrolled loop.

    at: for each iteration at which a stage begins, the stage's name.
    """

    def between(iteration: int, carry: Atom) -> Op | None:
        return mark_op(at[iteration], carry) if iteration in at else None

    return between


def with_marks(program: Program, points: Sequence[StagePoint]) -> Program:
    """The program with a mark before each op at which a stage begins.

    Points within loops are left out. Raises `StageError` for an op that is not there,
    or that reads nothing computed.
    """
    at = {p.op: name for p, name in names_of(points).items() if not p.iteration}
    made: set[Atom] = set()
    ops: list[Op] = []
    for number, op in enumerate(program.ops):
        if number in at:
            read = [a for a in op.operands if a in made] or [
                a for a in op.operands if isinstance(a, Value)
            ]
            if not read:
                raise StageError(
                    f"a stage cannot begin at op {number}, {op.kind}: it reads nothing; "
                    "begin it at a later op"
                )
            old = max(read, key=num_bytes)
            mark = mark_op(at[number], old)
            new = mark.results[0]
            operands = tuple(new if a is old else a for a in op.operands)
            ops += [mark, replace(op, operands=operands)]
        else:
            ops.append(op)
        made.update(op.results)
    missing = [op for op in at if not 0 <= op < len(program.ops)]
    if missing:
        raise StageError(
            f"a stage begins at op {missing[0]}; the program has {len(program.ops)} ops"
        )
    return replace(program, ops=tuple(ops))
