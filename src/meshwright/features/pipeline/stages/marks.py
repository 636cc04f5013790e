"""Marks of pipeline stages, written into a captured program where a plan begins them.

A stage begins at an op, or at an iteration of a loop over layers, which is unrolled
then. The mark is the same tag op that a user's `mw.stage` writes.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from meshwright.errors import StageError
from meshwright.features.pipeline.stages.cuts import MARK
from meshwright.program.ir import Atom, Op, Program, Value, num_bytes


@dataclass(frozen=True, slots=True)
class StagePoint:
    """The op of a captured program at which a pipeline stage begins.

    op: its position in the program. iteration: the loop iteration, if it is a loop over
        layers.
    """

    op: int
    iteration: int = 0

    def __str__(self) -> str:
        return f"op {self.op}" + (f", layer {self.iteration}" if self.iteration else "")


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


def with_marks(
    program: Program, points: Sequence[StagePoint], divided: Set[Atom]
) -> Program:
    """The program with a mark before each op at which a stage begins.

    divided: the values that the batch's division into microbatches divides. A stage
        begins at the next op that computes such a value from the batch and from other
        inputs, such as weights. (What only the batch enters, such as a mask or a count
        of tokens, may run before all microbatches.)

    Points within loops are left out. Raises `StageError` for an op that is not there.
    """
    at = {p.op: name for p, name in names_of(points).items() if not p.iteration}
    weighed: set[Atom] = {v for v in program.inputs if v not in divided}
    waiting: list[str] = []
    ops: list[Op] = []
    for number, op in enumerate(program.ops):
        if number in at:
            waiting.append(at.pop(number))
        if not weighed.isdisjoint(op.operands):
            weighed.update(op.results)
        read = [a for a in op.operands if a in divided]
        if waiting and read and op.results[0] in divided & weighed:
            old = max(read, key=lambda a: (a in weighed, num_bytes(a)))
            new = old
            for name in waiting:
                ops.append(mark_op(name, new))
                new = ops[-1].results[0]
            waiting.clear()
            op = replace(
                op, operands=tuple(new if a is old else a for a in op.operands)
            )
        ops.append(op)
    if at or waiting:
        late = [p.op for p, name in names_of(points).items() if name in waiting]
        first = min((*late, *at))
        raise StageError(
            f"a stage begins at op {first}; no op from there on reads a part of the batch, "
            f"in a program of {len(program.ops)} ops"
        )
    return replace(program, ops=tuple(ops))
