"""The staged step: the program of one microbatch, whose ops know their stage and pass.

It is an ordinary program over the inputs of the step, with the batch of one microbatch,
so that ordinary tactics partition it. It has two more kinds of op:

- `send`, which copies a value to another stage that reads it;
- `total`, whose result is the operand's reduction over all microbatches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from meshwright.features.pipeline.stages.cuts import Cuts
from meshwright.features.pipeline.stages.microbatches import Microbatches
from meshwright.features.pipeline.stages.passes import find_places
from meshwright.features.pipeline.stages.stage_part import PartKind, StagePart, part_at
from meshwright.features.pipeline.stages.updates import find_stages_after, split_sums
from meshwright.partitioner.structure.parts import PartSource
from meshwright.program.ir import Atom, Op, Program, Value


@dataclass(frozen=True, slots=True, eq=False)
class Staged:
    """The program of one microbatch, whose ops know their pipeline stage and pass.

    program: its inputs are those of the step, with slices of one microbatch in place of
        the batch, then `whole`, then the number of the microbatch.
    cuts: the stages.
    slices: by input position, the dim that microbatches slice.
    whole: positions of sliced inputs of the step that are also read unsliced.
    stacked: by output position, the dim along which microbatches are stacked.
    last: positions of outputs that are values of the last microbatch.
    """

    program: Program
    cuts: Cuts
    num_microbatches: int
    slices: Mapping[int, int]
    whole: tuple[int, ...]
    stacked: Mapping[int, int]
    last: frozenset[int]


def stage_step(step: Microbatches, cuts: Cuts) -> Staged:
    """The program of one microbatch in which each op has a stage and a pass."""
    place = find_places(step, cuts)
    step = split_sums(step, place)
    num_stages = cuts.num_stages
    part_of = {op: part_at(place[op], num_stages) for op in step.body}
    made: dict[Atom, StagePart] = {
        value: part_of[op] for op in step.body for value in op.results
    }
    first = StagePart(PartKind.FORWARD, 0)
    homes = {op.results[0]: made.get(op.operands[0], first).stage for op in step.sums}
    stages = find_stages_after(step.after, homes)
    part_of.update((op, StagePart(PartKind.UPDATE, stages[op])) for op in step.after)
    body = sorted(step.body, key=place.__getitem__)
    writer = _Writer()
    for op in step.before:
        writer.ops.append(op)
    for op in body:
        writer.run(op, part_of[op])
    for op in step.sums:
        part = made.get(op.operands[0], first)
        times = step.num_microbatches
        params = {"monoid": op.params["monoid"], "times": times, "part": part}
        total = Op("total", op.operands, op.results, params, (), op.source)
        writer.run(total, StagePart(PartKind.UPDATE, part.stage))
    for op in step.after:
        writer.run(op, part_of[op])
    return _staged(step, cuts, writer.ops)


def _staged(step: Microbatches, cuts: Cuts, ops: Sequence[Op]) -> Staged:
    """The staged step (the program of one microbatch) with the given ops."""
    slices = {place: (value, dim) for value, (place, dim) in step.slices.items()}
    read = {atom for op in ops for atom in op.operands} | {*step.outputs}
    whole = tuple(i for i in slices if step.inputs[i] in read)
    inputs = [
        slices[i][0] if i in slices else value for i, value in enumerate(step.inputs)
    ]
    inputs += [step.inputs[i] for i in whole] + [step.position]
    varying = {value for op in step.body for value in op.results}
    last = (i for i, atom in enumerate(step.outputs) if atom in varying)
    return Staged(
        Program(tuple(inputs), tuple(ops), step.outputs, step.constants),
        cuts,
        step.num_microbatches,
        {i: dim for i, (_, dim) in slices.items()},
        whole,
        step.stacked,
        frozenset(last) - step.stacked.keys(),
    )


class _Writer:
    """The ops of a staged step so far, with a `send` for each value of another stage.

    part: the stage and pass that compute a value, if one stage alone does.
    sent: by value and reading stage, the result of the `send`.
    """

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.part: dict[Atom, StagePart] = {}
        self.sent: dict[tuple[Atom, int], Value] = {}

    def run(self, op: Op, part: StagePart) -> None:
        """Write an op for a stage and pass; operands of other stages are sent first."""
        operands = tuple(self._at(atom, part.stage) for atom in op.operands)
        source = PartSource(op.source, part)
        self.part.update(dict.fromkeys(op.results, part))
        self.ops.append(replace(op, operands=operands, source=source))

    def _at(self, atom: Atom, stage: int) -> Atom:
        part = self.part.get(atom)
        if part is None or part.stage == stage:
            return atom
        key = atom, stage
        if key not in self.sent:
            sent = self.sent[key] = Value(atom.shape, atom.dtype)
            source = PartSource("", part)
            params = {"to": stage, "index": len(self.sent) - 1}
            self.ops.append(Op("send", (atom,), (sent,), params, (), source))
        return self.sent[key]
