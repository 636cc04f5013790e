"""Divides a training step into ops that run once and ops that run for each microbatch.

To find the ops of each kind, the batch is sharded along an extra mesh axis whose parts run
one after another, not on several devices (`lower/time_loops.py`). Every op that this
sharding reaches runs once for each microbatch. Gradient accumulation runs those ops in one
scan; a pipeline runs them stage by stage.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from meshwright.errors import StageError
from meshwright.features.pipeline.stages.statistics import with_own_statistics
from meshwright.machine import Mesh
from meshwright.partitioner.lower.lowered import Lowered
from meshwright.partitioner.lower.time_crossings import is_crossing, rename, separate
from meshwright.partitioner.lower.time_loops import TimeLoops
from meshwright.partitioner.lower.time_positions import Positions
from meshwright.partitioner.lower.time_stages import (
    Stages,
    find_stages,
    reads_position,
)
from meshwright.program.analysis.executions import op_executions
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import work_of
from meshwright.program.rewrite.recomputation import copied

MICROBATCH = "microbatch"
"""Name of the sequential axis along which the batch is divided into microbatches."""


@dataclass(frozen=True, slots=True, eq=False)
class Microbatches:
    """The ops of a training step, by how often they run.

    inputs, outputs: those of the step; an output that is a stack of all microbatches is
        the value of one microbatch, and `stacked` has the dim along which it is
        stacked.
    before, after: ops that run once, before and after all microbatches.
    body: ops that run for each microbatch.
    sums: reductions over microbatches, whose results `after` reads.
    slices: for values of one microbatch that are slices of an input, the position of
        the input and the dim that is sliced.
    position: the number of the microbatch, as `body` reads it.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Atom, ...]
    constants: Mapping[Value, object]
    before: tuple[Op, ...]
    body: tuple[Op, ...]
    after: tuple[Op, ...]
    sums: tuple[Op, ...]
    slices: Mapping[Value, tuple[int, int]]
    stacked: Mapping[int, int]
    position: Value
    num_microbatches: int


def find_microbatches(lowered: Lowered, own_statistics: bool = False) -> Microbatches:
    """Divide a step's ops: before, in, or after the loop over microbatches.

    lowered: the step, lowered along the sequential axis `MICROBATCH`.
    own_statistics: whether sums over the batch in the middle of the step, as of a batch
        norm, are taken over each microbatch instead.

    Raises `StageError` with the source line of a value that needs all microbatches in
    the middle of the step.
    """
    alone = separate(lowered, MICROBATCH)
    if own_statistics:
        length = lowered.mesh.size(MICROBATCH)
        program = with_own_statistics(alone.program, MICROBATCH, length)
        alone = replace(alone, program=program)
    stages = find_stages(alone.program, MICROBATCH)
    main = _main_loop(stages)
    _require_one_loop(stages, main)
    alone, stages = _with_repeats(alone, stages, main)
    loops = TimeLoops(alone, MICROBATCH, stages)
    before: list[Op] = []
    for loop in range(main):
        before += [op for op, count in stages.outside.items() if count == loop]
        before += loops.loop(loop, [op for op, at in stages.loop.items() if at == loop])
    before += [op for op, count in stages.outside.items() if count == main]
    if loops.stacked:
        value = next(iter(loops.stacked))
        raise StageError(
            f"a value {value} of each microbatch is kept from a sum over the whole batch "
            "for later; a pipeline has one loop over microbatches"
        )
    inside = [op for op, at in stages.loop.items() if at == main]
    after = [op for op, count in stages.outside.items() if count > main]
    return _Reading(alone, lowered.mesh).microbatches(before, inside, after)


def _with_repeats(alone: Lowered, stages: Stages, main: int) -> tuple[Lowered, Stages]:
    """The program whose main loop computes again what it reads of earlier loops.

    A loss over the tokens that a mask keeps is an example: an earlier loop counts them,
    and the main loop needs the mask too. Ops with effects are not repeated.
    """
    earlier = [
        op
        for op in alone.program.ops
        if stages.loop.get(op, main) < main
        and not is_crossing(op, MICROBATCH)
        and not op.has_effect
    ]
    needed = {a for op, at in stages.loop.items() if at == main for a in op.operands}
    chosen: list[Op] = []
    for op in reversed(earlier):
        if not needed.isdisjoint(op.results):
            chosen.insert(0, op)
            needed.update(op.operands)
    if not chosen:
        return alone, stages
    copies = copied(Program((), tuple(chosen), ())).ops
    pairs = list(zip(chosen, copies, strict=True))
    known: dict[Atom, Atom] = {
        old: new
        for op, copy in pairs
        for old, new in zip(op.results, copy.results, strict=True)
    }
    loop = {**stages.loop, **dict.fromkeys(copies, main)}
    origins = {**alone.origins}
    origins.update((copy, origins[op]) for op, copy in pairs if op in origins)
    following = dict(pairs)
    ops: list[Op] = []
    for op in alone.program.ops:
        new = rename(op, known, origins) if loop.get(op) == main else op
        loop.update({new: main} if new is not op else {})
        ops += [new, following[op]] if op in following else [new]
    program = replace(alone.program, ops=tuple(ops))
    loop = {op: loop[op] for op in ops if op in loop}
    return replace(alone, program=program, origins=origins), replace(stages, loop=loop)


def _main_loop(stages: Stages) -> int:
    """The number of the loop over microbatches that has most FLOPs."""
    work = [0] * max(stages.num_loops, 1)
    for op, at in stages.loop.items():
        work[at] += 1 + flops_of(op)
    return max(range(len(work)), key=work.__getitem__)


def flops_of(op: Op) -> int:
    """FLOPs of an op, with all iterations of its bodies."""
    alone = Program((), (op,), ())
    return sum(times * work_of(each).flops for each, times in op_executions(alone))


_FEW = 0.02
"""Largest share of the FLOPs in loops over microbatches other than the main one.

A count of the tokens of a batch has far less, a layer before a batch norm more.
"""


def _require_one_loop(stages: Stages, main: int) -> None:
    """Raise `StageError` if much work is in other loops than the main one."""
    if not stages.num_loops:
        raise StageError(
            "nothing in the step depends on the batch; a pipeline needs a batch that it "
            "can divide into microbatches"
        )
    total = sum(map(flops_of, stages.loop))
    other = sum(flops_of(op) for op, at in stages.loop.items() if at != main)
    if other <= _FEW * total and stages.num_loops - 1 == main:
        return
    op = next(
        op for op, at in stages.loop.items() if at == 0 and is_crossing(op, MICROBATCH)
    )
    advice = (
        "give statistics='microbatch' to take such sums over each microbatch, as batch "
        "norms do under gradient accumulation, or use a norm of single examples"
    )
    if op.kind != "all_reduce":
        advice = "give microbatches=1, so that each example meets all others"
    raise StageError(
        f"{op.source}: {op.kind} over the whole batch ({op.params.get('reason')}) in the "
        f"middle of the step, so that no microbatch can go on before all others are there; "
        f"{advice}"
    )


class _Reading:
    """Builds `Microbatches` from a program lowered along the axis of microbatches."""

    def __init__(self, alone: Lowered, mesh: Mesh) -> None:
        self.alone = alone
        self.mesh = mesh
        self.program = alone.program
        self.number: dict[Atom, int] = {
            value: i for i, value in enumerate(self.program.inputs)
        }
        self.slices: dict[Value, tuple[int, int]] = {}
        self.known: dict[Atom, Atom] = {}
        self.position = Value((), "int32")

    def microbatches(
        self, before: Sequence[Op], inside: Sequence[Op], after: Sequence[Op]
    ) -> Microbatches:
        """The step divided as given: ops before, inside and after the main loop."""
        body: list[Op] = []
        sums: list[Op] = []
        for op in inside:
            if is_crossing(op, MICROBATCH):
                operands = (self.known.get(op.operands[0], op.operands[0]),)
                sums.append(replace(op, operands=operands))
            else:
                body += self._of_one(op)
        outputs, stacked, sums = self._stacks(sums, after)
        return Microbatches(
            self.program.inputs,
            tuple(self.known.get(atom, atom) for atom in outputs),
            self.program.constants,
            tuple(before),
            tuple(body),
            tuple(after),
            tuple(sums),
            self.slices,
            stacked,
            self.position,
            self.mesh.size(MICROBATCH),
        )

    def _of_one(self, op: Op) -> Sequence[Op]:
        """The op or ops that replace `op` in the program of one microbatch.

        A slice of an input along the batch becomes an input itself, and so needs no op.
        """
        if op.kind == "all_slice" and op.operands[0] in self.number:
            place = self.number[op.operands[0]], int(str(op.params["dim"]))
            same = (v for v, other in self.slices.items() if other == place)
            first = next(same, None)
            if first is None:
                self.slices[op.results[0]] = place
            else:
                self.known[op.results[0]] = first
            return ()
        if reads_position(op, MICROBATCH):
            places = Positions(self.mesh, MICROBATCH, {})
            return places.resolved(op, self.position, self.known)
        if any(atom in self.known for atom in op.operands):
            operands = tuple(self.known.get(a, a) for a in op.operands)
            return (replace(op, operands=operands),)
        return (op,)

    def _stacks(
        self, sums: Sequence[Op], after: Sequence[Op]
    ) -> tuple[tuple[Atom, ...], dict[int, int], list[Op]]:
        """(outputs, dims of outputs that are stacks of microbatches, other reductions).

        An output that gathers a value over microbatches is replaced by that value.
        """
        read = {atom for op in after for atom in op.operands}
        outputs, dims = list(self.program.outputs), dict[int, int]()
        rest: list[Op] = []
        for op in sums:
            if op.kind == "all_reduce":
                rest.append(op)
                continue
            if op.results[0] in read:
                raise StageError(
                    f"{op.source}: a value of all microbatches, {op.results[0]}, is "
                    "needed at the end of the step; a pipeline hands only sums over "
                    "microbatches to the end of a step"
                )
            for place, atom in enumerate(outputs):
                if atom is op.results[0]:
                    outputs[place] = op.operands[0]
                    dims[place] = int(str(op.params["dim"]))
        return tuple(outputs), dims, rest
