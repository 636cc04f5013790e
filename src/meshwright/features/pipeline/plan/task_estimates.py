"""Each task of a pipeline's stages, simulated alone as a step of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from meshwright.features.pipeline.plan.simulated_step import SimulatedTask
from meshwright.features.pipeline.schedules.schedule import TaskKind
from meshwright.features.pipeline.stages.lowered_step import LoweredStep
from meshwright.features.pipeline.stages.staged_step import StagedStep
from meshwright.features.pipeline.stages.tasks import StageTasks, TaskProgram
from meshwright.machine import Machine
from meshwright.machine.placement import Placement
from meshwright.partitioner.decide import Decided
from meshwright.predict.estimate import estimate
from meshwright.program.capture import aval_of
from meshwright.program.capture.donation import donated_inputs
from meshwright.program.ir import Atom, Sharding, Value, num_bytes

type Programs = Sequence[tuple[LoweredStep, StageTasks]]
"""The device program of each stage, and the stage's tasks."""


def simulated_tasks(
    step: StagedStep,
    programs: Programs,
    parts: Mapping[int, Machine],
    donate_state: bool,
) -> tuple[SimulatedTask, ...]:
    """The tasks of all stages, each simulated on its submesh.

    parts: by number of devices, the part of the machine with so many.
    donate_state: treat each input whose updated value the step returns as donated.
    """
    found: list[SimulatedTask] = []
    for number, (lowered, tasks) in enumerate(programs):
        decided = step.decided[number]
        part = parts[decided.work.mesh.num_devices]
        placement = _placement(decided, lowered, tasks, part)
        kept = {*tasks.backward.inputs}
        for name, kind, task in _named(step, tasks):
            if not task.program.ops:
                continue
            alone = _as_step(decided, lowered, task, donate_state)
            simulated = estimate(alone, part, placement=placement)
            count = 1 if kind is None else step.schedule.num_microbatches
            waiting = kept if kind is TaskKind.FORWARD else set[Atom]()
            kept_bytes = _bytes(waiting.intersection(task.outputs))
            found.append(
                SimulatedTask(number, name, kind, count, kept_bytes, alone, simulated)
            )
    return tuple(found)


def _placement(
    decided: Decided, lowered: LoweredStep, tasks: StageTasks, machine: Machine
) -> Placement:
    """Where the axes of a stage's submesh lie: as its backward pass is fastest.

    All tasks of a stage run on the same devices. A stage without a backward pass is
    placed by its forward pass.
    """
    task = tasks.backward if tasks.backward.program.ops else tasks.forward
    return estimate(_as_step(decided, lowered, task, False), machine).placement


def _named(
    step: StagedStep, tasks: StageTasks
) -> Iterator[tuple[str, TaskKind | None, TaskProgram]]:
    """The tasks that a schedule runs, with names and kinds."""
    is_split = any(
        task.kind is TaskKind.INPUT_GRADIENT
        for order in step.schedule.orders
        for task in order
    )
    yield "before all microbatches", None, tasks.before
    yield "forward pass", TaskKind.FORWARD, tasks.forward
    if is_split:
        yield "gradients of inputs", TaskKind.INPUT_GRADIENT, tasks.input_gradient
        yield "gradients of weights", TaskKind.WEIGHT_GRADIENT, tasks.weight_gradient
    else:
        yield "backward pass", TaskKind.BACKWARD, tasks.backward
    for level, task in tasks.updates.items():
        yield f"update {level + 1}" if level else "update", None, task


def _as_step(
    decided: Decided, lowered: LoweredStep, task: TaskProgram, donate_state: bool
) -> Decided:
    """The decisions about one task, as if it were a step.

    Running sums are donated, and so is donated state whose next value the task computes.
    """
    captured, program = decided.captured, lowered.lowered.program
    named: dict[Atom, str] = dict(zip(program.inputs, captured.paths, strict=True))
    named.update(
        (s.received, "a value of another stage") for s in lowered.sends.values()
    )
    donated = set(donated_inputs(captured, donate_state))
    ties = dict(task.totals)
    places = {value: i for i, value in enumerate(task.inputs)}
    for output, atom in enumerate(task.outputs):
        for place, position in captured.ties.items():
            value = program.inputs[position]
            if (
                program.outputs[place] is atom
                and position in donated
                and value in places
            ):
                ties[output] = places[value]
    alone = replace(
        captured,
        paths=tuple(named.get(v, "a value kept by the stage") for v in task.inputs),
        avals=tuple(map(aval_of, task.inputs)),
        ties=ties,
        donated=tuple(ties.values()),
    )
    # Every device has arguments of its own, which no sharding of a whole array describes.
    local = replace(
        decided.lowered,
        program=task.program,
        inputs=tuple(map(_whole, task.inputs)),
        outputs=tuple(map(_whole, task.outputs)),
    )
    return replace(decided, captured=alone, lowered=local)


def _whole(atom: Atom) -> Sharding:
    """The sharding of an array that is not cut."""
    return Sharding(((),) * len(atom.shape))


def _bytes(values: Iterable[Atom]) -> int:
    return sum(num_bytes(v) for v in values if isinstance(v, Value))
