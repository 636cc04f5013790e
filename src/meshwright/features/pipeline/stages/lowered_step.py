"""Sorts the ops of a lowered pipelined step by stage and pass.

The step of one microbatch is lowered as a whole, with all stages in it. Each device op
belongs to the stage and pass of the op for which lowering wrote it. Ops that do not
depend on the microbatch belong to none, and run once.
"""

from dataclasses import dataclass, field, replace

from meshwright.features.pipeline.stages.stage_part import PartKind, StagePart
from meshwright.features.pipeline.stages.staged import Staged
from meshwright.features.pipeline.stages.totals import Total
from meshwright.partitioner.lower import Lowered
from meshwright.partitioner.structure.parts import PartSource
from meshwright.program.ir import Atom, Op, Sharding, Value


@dataclass(frozen=True, slots=True, eq=False)
class Send:
    """A value that one pipeline stage computes and another reads.

    value: the value on the sender. received: the same on the receiver.
    to: the receiving stage. part: the stage and pass that compute the value.
    """

    value: Value
    received: Value
    to: int
    part: StagePart


@dataclass(slots=True, eq=False)
class LoweredStep:
    """The device ops of a lowered pipelined step, sorted by stage and pass.

    once: ops that depend on no microbatch.
    passes: ops of each pass of a stage, in order.
    updates: ops that depend on sums over microbatches, by level (below) and stage.
    sends: values that go from stage to stage, by their numbers in the staged step.
    totals: sums over microbatches, by the pass that computes the addend.
    shardings: for inputs, sends and outputs, their shardings over the stage's devices.
    varying: values that differ between microbatches.
    level: for a value that depends on totals, the number of sends between updates of
        different stages that it depends on.
    """

    lowered: Lowered
    once: list[Op] = field(default_factory=list[Op])
    passes: dict[StagePart, list[Op]] = field(default_factory=dict)
    updates: dict[tuple[int, int], list[Op]] = field(default_factory=dict)
    sends: dict[int, Send] = field(default_factory=dict)
    totals: dict[StagePart, list[Total]] = field(default_factory=dict)
    shardings: dict[Atom, Sharding] = field(default_factory=dict)
    varying: set[Value] = field(default_factory=set)
    level: dict[Atom, int] = field(default_factory=dict)


def read_lowered(staged: Staged, lowered: Lowered) -> LoweredStep:
    """Sort the device ops of a lowered pipelined step by stage and pass."""
    return _Reader(staged, LoweredStep(lowered)).read()


@dataclass
class _Reader:
    """Fills in a `LoweredStep`.

    pass_of: for each value that differs between microbatches, the pass that computes it.
    """

    staged: Staged
    step: LoweredStep
    pass_of: dict[Atom, StagePart] = field(default_factory=dict)

    def read(self) -> LoweredStep:
        """The step with all of its ops sorted."""
        step, staged = self.step, self.staged
        lowered, program = step.lowered, step.lowered.program
        step.shardings.update(zip(program.inputs, lowered.inputs, strict=True))
        for atom, sharding in zip(program.outputs, lowered.outputs, strict=True):
            if isinstance(atom, Value):
                step.shardings.setdefault(atom, sharding)
        for i, value in enumerate(program.inputs):
            if i in staged.slices or i == len(program.inputs) - 1:
                step.varying.add(value)
        sent = [op for op in staged.program.ops if op.kind == "send"]
        for op in program.ops:
            if op.kind == "send":
                self._send(op, sent[int(str(op.params["index"]))])
            elif op.kind == "total":
                self._total(op)
            else:
                self._compute(op)
        step.sends = dict(sorted(step.sends.items()))
        return step

    def _send(self, op: Op, original: Op) -> None:
        step = self.step
        (value,), (received,) = op.operands, op.results
        assert isinstance(value, Value), f"a literal is sent: {op}"
        part = _part_of(op)
        assert part is not None, f"the send of {value} belongs to no part"
        if value in step.varying:
            step.varying.add(received)
            self.pass_of[received] = self.pass_of[value]
        elif value in step.level:
            step.level[received] = step.level[value] + 1
        else:  # every stage computes for itself what depends on no microbatch
            step.once.append(replace(op, kind="tag", params={"name": "once"}))
            return
        sharding = step.lowered.stored[original.results[0]]
        step.shardings[received] = step.shardings[value] = sharding
        stage = int(str(op.params["to"]))
        step.sends[int(str(op.params["index"]))] = Send(value, received, stage, part)

    def _total(self, op: Op) -> None:
        step, part = self.step, op.params["part"]
        assert isinstance(part, StagePart), "a total belongs to no part"
        monoid = str(op.params["monoid"])
        total = Total(op.operands[0], op.results[0], monoid)
        step.totals.setdefault(part, []).append(total)
        step.level[op.results[0]] = 0

    def _compute(self, op: Op) -> None:
        step, part = self.step, _part_of(op)
        levels = [step.level[atom] for atom in op.operands if atom in step.level]
        if levels:
            assert part is not None, f"an op on totals belongs to no stage: {op}"
            step.level.update(dict.fromkeys(op.results, max(levels)))
            step.updates.setdefault((max(levels), part.stage), []).append(op)
            return
        is_pass = part is not None and part.kind is not PartKind.UPDATE
        is_once = step.varying.isdisjoint(op.operands)
        if is_once and not (is_pass and op.has_effect):
            step.once.append(op)
            return
        if part is None or not is_pass:  # it prepares an addend of a total
            part = next(self.pass_of[a] for a in op.operands if a in self.pass_of)
        step.varying.update(op.results)
        self.pass_of.update(dict.fromkeys(op.results, part))
        step.passes.setdefault(part, []).append(op)


def _part_of(op: Op) -> StagePart | None:
    part = op.source.part if isinstance(op.source, PartSource) else None
    return part if isinstance(part, StagePart) else None
