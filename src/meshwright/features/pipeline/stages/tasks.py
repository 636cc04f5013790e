"""Device programs of the passes and updates of one pipeline stage.

They are taken from a lowered step. Ops that do not depend on the microbatch run once
before all microbatches, on every stage that reads their results. Some run in each pass
that reads their results instead, so that a device need not hold these: gathers of weights
that are stored in parts (ZeRO stage 3), reshapes and broadcasts. A value that one task
computes and another task of the same stage reads stays on the devices in its sharding,
even as a partial sum.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from meshwright.features.pipeline.stages.lowered_step import LoweredStep
from meshwright.features.pipeline.stages.stage_part import PartKind, StagePart
from meshwright.features.pipeline.stages.totals import Total, added, first_total
from meshwright.program.ir import Atom, Op, Program, Value, num_bytes
from meshwright.program.ops import Trait, has_trait
from meshwright.program.rewrite.dead_code import eliminate_dead_code


@dataclass(frozen=True, slots=True, eq=False)
class TaskProgram:
    """A device program of one stage.

    Its inputs and outputs are values of the lowered step.

    totals: for each output that is a running sum over microbatches, the position of the
        input with the sum so far, which it replaces.
    donated: positions of inputs whose memory the task may take, besides such sums.
    """

    program: Program
    totals: Mapping[int, int] = field(default_factory=dict[int, int])
    donated: tuple[int, ...] = ()

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.program.inputs

    @property
    def outputs(self) -> tuple[Atom, ...]:
        return self.program.outputs

    @property
    def sharded_like(self) -> tuple[Atom, ...]:
        """The value whose sharding each output has.

        A running sum has the sharding of the input that it replaces.
        """
        atoms = list(self.outputs)
        for output, position in self.totals.items():
            atoms[output] = self.inputs[position]
        return tuple(atoms)


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


class _StageWriter:
    """Writes the tasks of one stage.

    forward, backward: the ops of the stage's passes.
    totals: the sums over microbatches of addends that each of the passes computes.
    late: the stage's ops after all microbatches, by level.
    outside: values that other stages read or the step returns.
    repeated: the ops that run in each pass and depend on no microbatch, by result.
    """

    def __init__(self, step: LoweredStep, stage: int) -> None:
        self.step, self.stage = step, stage
        parts = [
            StagePart(PartKind.FORWARD, stage),
            StagePart(PartKind.BACKWARD, stage),
        ]
        self.forward, self.backward = (step.passes.get(part, ()) for part in parts)
        self.totals = [step.totals.get(part, ()) for part in parts]
        self.late = {lv: ops for (lv, s), ops in step.updates.items() if s == stage}
        sent = (send.value for send in step.sends.values())
        self.outside: set[Atom] = {*sent, *step.lowered.program.outputs}
        self.repeated: dict[Atom, Op] = {
            value: op for op in _repeated(step) for value in op.results
        }

    def tasks(self) -> StageTasks:
        """The tasks of the stage."""
        inner, rest = self._split(self.backward)
        forward, backward = self.totals
        in_inner = {value for op in inner for value in op.results}
        return StageTasks(
            before=self._before([*forward, *backward]),
            forward=self._pass(self.forward, forward),
            backward=self._pass(self.backward, backward),
            input_gradient=self._pass(
                inner, [t for t in backward if t.addend in in_inner]
            ),
            weight_gradient=self._pass(
                rest, [t for t in backward if t.addend not in in_inner]
            ),
            updates={level: self._update(level) for level in sorted(self.late)},
        )

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

    def _read(self, ops: Collection[Op], totals: Collection[Total]) -> set[Atom]:
        """The values that the passes read or add to sums, except in `ops` and `totals`."""
        others = [op for op in (*self.forward, *self.backward) if op not in ops]
        sums = [t for each in self.totals for t in each if t not in totals]
        read: set[Atom] = {total.addend for total in sums}
        return read.union(*(op.operands for op in others))

    def _pass(self, ops: Sequence[Op], totals: Sequence[Total]) -> TaskProgram:
        """The task of a pass over one microbatch, which also adds to running sums."""
        read = self._read(set(ops), totals) | self.outside
        outputs = [v for op in ops for v in op.results if v in read]
        addends = [total.addend for total in totals]
        return self._task(self._with_repeated(ops, addends), outputs, totals)

    def _with_repeated(self, ops: Sequence[Op], wanted: Collection[Atom]) -> list[Op]:
        """The ops of a pass, each after the repeated ops that it is the first to read.

        wanted: values that are read after the pass.
        """
        found: dict[Op, None] = {}

        def repeat(atom: Atom) -> None:
            op = self.repeated.get(atom)
            if op is not None and op not in found:
                for operand in op.operands:
                    repeat(operand)
                found[op] = None

        for op in ops:
            for atom in op.operands:
                repeat(atom)
            found[op] = None
        for atom in wanted:
            repeat(atom)
        return [*found]

    def _before(self, totals: Sequence[Total]) -> TaskProgram:
        """The task that runs once, before all microbatches.

        It computes values that depend on no microbatch, and the initial values of sums.
        On stage 0 it also computes program outputs that depend on no microbatch.
        """
        passes = (*self.forward, *self.backward)
        addends = [total.addend for total in totals]
        every = self._with_repeated(passes, addends)
        read = {a for op in every for a in op.operands}.union(addends)
        read -= self.repeated.keys()
        read |= self.outside if self.stage == 0 else set()
        ops = self._closure(read)
        outputs = [v for op in ops for v in op.results if v in read]
        ops += map(first_total, totals)
        return self._task(ops, [*outputs, *(total.result for total in totals)])

    def _closure(self, wanted: Collection[Atom]) -> list[Op]:
        """The ops, of those that run once, on which the `wanted` values depend.

        On stage 0 ops with effects are included.
        """
        needed = set(wanted)
        ops: list[Op] = []
        for op in reversed(self.step.once):
            is_effect = op.has_effect and self.stage == 0
            if is_effect or not needed.isdisjoint(op.results):
                needed.update(op.operands)
                ops.append(op)
        return ops[::-1]

    def _update(self, level: int) -> TaskProgram:
        """The update task of one level, which runs after all microbatches.

        It computes again the values that depend on no microbatch, if it reads any.
        """
        late = self.late[level]
        later = [op for lv, ops in self.late.items() if lv > level for op in ops]
        read = self.outside.union(*(op.operands for op in later))
        outputs = [v for op in late for v in op.results if v in read]
        operands = {atom for op in late for atom in op.operands}
        return self._task([*self._closure(operands), *late], outputs)

    def _task(
        self,
        ops: Sequence[Op],
        outputs: Sequence[Value],
        totals: Sequence[Total] = (),
    ) -> TaskProgram:
        """The program that computes `outputs`, and adds one microbatch to `totals`."""
        constants = self.step.lowered.program.constants
        computed = {value for op in ops for value in op.results}.union(constants)
        read = dict.fromkeys(a for op in ops for a in op.operands)
        read.update(dict.fromkeys(total.addend for total in totals))
        inputs = [a for a in read if isinstance(a, Value) and a not in computed]
        sums = [Value(t.result.shape, t.result.dtype) for t in totals]
        positions = {len(outputs) + i: len(inputs) + i for i in range(len(totals))}
        inputs += [total.result for total in totals]
        ops = [*ops, *map(added, totals, sums)]
        program = Program(tuple(inputs), tuple(ops), (*outputs, *sums), constants)
        live = replace(eliminate_dead_code(program), inputs=tuple(inputs))
        return TaskProgram(live, positions)


_MOVED = (Trait.MOVES, Trait.ALIASES_OPERAND)


def _repeated(step: LoweredStep) -> Iterator[Op]:
    """The ops of `step.once` that run in each pass that reads them.

    They are reshardings of a microbatch's inputs, gathers, what is computed from their
    results, and ops that only move elements, to a result that is not smaller than what
    they read.
    """
    gathered: set[Atom] = set()
    for op in step.once:
        if op.has_effect:
            continue
        is_gathered = op.kind == "all_gather" or not step.varying.isdisjoint(
            op.operands
        )
        is_gathered = is_gathered or not gathered.isdisjoint(op.operands)
        if is_gathered:
            gathered.update(op.results)
        read = sum(num_bytes(atom) for atom in op.operands if isinstance(atom, Value))
        is_moved = any(has_trait(op.kind, trait) for trait in _MOVED)
        if is_gathered or (is_moved and sum(map(num_bytes, op.results)) >= read):
            yield op
