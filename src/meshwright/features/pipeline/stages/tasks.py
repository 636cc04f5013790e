"""Device programs of the passes and updates of one pipeline stage.

They are taken from a lowered step. Ops that do not depend on the microbatch run once
before all microbatches, on every stage that reads their results. A value that one task
computes and another task of the same stage reads stays on the devices in its sharding,
even as a partial sum.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from meshwright.features.pipeline.stages.lowered_step import LoweredStep
from meshwright.features.pipeline.stages.stage_part import PartKind, StagePart
from meshwright.features.pipeline.stages.totals import Total, added, first_total
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.rewrite.dead_code import eliminate_dead_code


@dataclass(frozen=True, slots=True, eq=False)
class TaskProgram:
    """A device program of one stage.

    Its inputs and outputs are values of the lowered step.

    totals: for each output that is a running sum over microbatches, the position of the
        input with the sum so far, which it replaces.
    """

    program: Program
    totals: Mapping[int, int] = field(default_factory=dict[int, int])

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.program.inputs

    @property
    def outputs(self) -> tuple[Atom, ...]:
        return self.program.outputs


@dataclass(frozen=True, slots=True, eq=False)
class StageTasks:
    """The device programs (tasks) of one pipeline stage.

    before: runs once; its results include the initial values of sums over microbatches.
    backward: the backward pass in one task; empty if the stage has none.
    input_gradient, weight_gradient: the backward pass in two tasks, first the gradients
        that other stages wait for, then the rest.
    updates: by level; a task of one level needs sends from tasks of lower levels.
    """

    before: TaskProgram
    forward: TaskProgram
    backward: TaskProgram
    input_gradient: TaskProgram
    weight_gradient: TaskProgram
    updates: Mapping[int, TaskProgram]

    @property
    def every(self) -> tuple[TaskProgram, ...]:
        """All tasks; a schedule runs `backward`, or its two halves instead."""
        return (
            self.before, self.forward, self.backward, self.input_gradient,
            self.weight_gradient, *self.updates.values(),
        )  # fmt: skip


def stage_tasks(step: LoweredStep, stage: int) -> StageTasks:
    """The tasks of one stage of a lowered step."""
    return _StageWriter(step, stage).tasks()


@dataclass
class _StageWriter:
    step: LoweredStep
    stage: int

    def __post_init__(self) -> None:
        step, stage = self.step, self.stage
        self.forward = StagePart(PartKind.FORWARD, stage)
        self.backward = StagePart(PartKind.BACKWARD, stage)
        self.late = {lv: ops for (lv, s), ops in step.updates.items() if s == stage}
        self.outside = {s.value for s in step.sends.values()} | {
            *step.lowered.program.outputs
        }

    def tasks(self) -> StageTasks:
        step = self.step
        forward = step.passes.get(self.forward, ())
        backward = step.passes.get(self.backward, ())
        inner, rest = self._split(backward)
        groups = {
            "forward": (forward, step.totals.get(self.forward, ())),
            "backward": (backward, step.totals.get(self.backward, ())),
        }
        totals = groups["backward"][1]
        in_inner = {value for op in inner for value in op.results}
        split = (
            [t for t in totals if t.addend in in_inner],
            [t for t in totals if t.addend not in in_inner],
        )
        kept = self._read_by([forward, backward], [*groups["forward"][1], *totals])
        tasks = {name: self._pass(ops, t, kept) for name, (ops, t) in groups.items()}
        tasks["input_gradient"] = self._pass(inner, split[0], kept)
        tasks["weight_gradient"] = self._pass(rest, split[1], kept)
        before = self._before(kept, [*groups["forward"][1], *totals])
        updates = {level: self._update(level) for level in sorted(self.late)}
        return StageTasks(before, **tasks, updates=updates)

    def _split(self, backward: Sequence[Op]) -> tuple[list[Op], list[Op]]:
        """Split backward ops into ops that sends to other stages need, and the rest."""
        needed: set[Atom] = {s.value for s in self.step.sends.values()}
        inner: list[Op] = []
        for op in reversed(backward):
            if not needed.isdisjoint(op.results):
                needed.update(op.operands)
                inner.append(op)
        taken = set(inner)
        return inner[::-1], [op for op in backward if op not in taken]

    def _read_by(
        self, groups: Iterable[Sequence[Op]], totals: Iterable[Total]
    ) -> set[Atom]:
        read = {atom for ops in groups for op in ops for atom in op.operands}
        return read | {total.addend for total in totals}

    def _pass(
        self, ops: Sequence[Op], totals: Sequence[Total], kept: Collection[Atom]
    ) -> TaskProgram:
        """The task of a pass over one microbatch, which also adds to running sums."""
        made = {value for op in ops for value in op.results}
        inside = self._inside(ops, totals)
        wanted = [
            v
            for op in ops
            for v in op.results
            if v in self.outside or (v in kept and v not in inside)
        ]
        ops, inputs, outputs = list(ops), list[Value](), list[Atom](wanted)
        ties: dict[int, int] = {}
        read = dict.fromkeys(a for op in ops for a in op.operands)
        read.update(dict.fromkeys(total.addend for total in totals))
        inputs = [a for a in read if isinstance(a, Value) and a not in made]
        inputs = [a for a in inputs if a not in self.step.lowered.program.constants]
        for total in totals:
            new = Value(total.result.shape, total.result.dtype)
            ties[len(outputs)] = len(inputs)
            inputs.append(total.result)
            outputs.append(new)
            ops.append(added(total, new))
        return TaskProgram(self._program(inputs, ops, outputs), ties)

    def _inside(self, ops: Sequence[Op], totals: Sequence[Total]) -> set[Atom]:
        """Results of `ops` that no other pass of the stage reads."""
        mine: set[Atom] = {value for op in ops for value in op.results}
        step = self.step
        tasks = [step.passes.get(self.forward, ()), step.passes.get(self.backward, ())]
        chosen = set(ops)
        others = {a for t in tasks for op in t if op not in chosen for a in op.operands}
        parts = (self.forward, self.backward)
        every = [t for part in parts for t in step.totals.get(part, ())]
        addends = {total.addend for total in every if total not in totals}
        return mine - others - addends

    def _before(self, kept: Collection[Atom], totals: Sequence[Total]) -> TaskProgram:
        """The task that runs once, before all microbatches.

        It computes values that depend on no microbatch, and the initial values of sums.
        On stage 0 it also computes program outputs that depend on no microbatch.
        """
        kept = {*kept, *(self.outside if self.stage == 0 else ())}
        ops = [*self._closure(kept)]
        made = {value for op in ops for value in op.results}
        outputs: list[Atom] = [v for op in ops for v in op.results if v in kept]
        for total in totals:
            ops.append(first_total(total))
            outputs.append(total.result)
        read = dict.fromkeys(a for op in ops for a in op.operands)
        inputs = [a for a in read if isinstance(a, Value) and a not in made]
        given = set(self.step.lowered.program.inputs)
        inputs = [a for a in inputs if a in given]
        return TaskProgram(self._program(inputs, ops, outputs))

    def _closure(self, wanted: Collection[Atom]) -> list[Op]:
        """The ops, of those that run once, on which the `wanted` values depend.

        On stage 0 ops with effects are included.
        """
        needed = set(wanted)
        found: list[Op] = []
        for op in reversed(self.step.once):
            is_effect = op.has_effect and self.stage == 0
            if is_effect or not needed.isdisjoint(op.results):
                needed.update(op.operands)
                found.append(op)
        return found[::-1]

    def _update(self, level: int) -> TaskProgram:
        """The update task of one level, which runs after all microbatches.

        It computes again the values that depend on no microbatch, if it reads any.
        """
        late = self.late[level]
        read = {atom for op in late for atom in op.operands}
        ops = [*self._closure(read), *late]
        made = {value for op in ops for value in op.results}
        later = {
            a for lv, ops in self.late.items() if lv > level for o in ops
            for a in o.operands
        }  # fmt: skip
        outputs: list[Atom] = [
            v for op in late for v in op.results if v in self.outside or v in later
        ]
        order = dict.fromkeys(a for op in ops for a in op.operands)
        inputs = [
            a
            for a in order
            if isinstance(a, Value)
            and a not in made
            and a not in self.step.lowered.program.constants
        ]
        return TaskProgram(self._program(inputs, ops, outputs))

    def _program(
        self, inputs: Sequence[Value], ops: Sequence[Op], outputs: Sequence[Atom]
    ) -> Program:
        constants = self.step.lowered.program.constants
        program = Program(tuple(inputs), tuple(ops), tuple(outputs), constants)
        live = eliminate_dead_code(program)
        return replace(live, inputs=tuple(inputs))
