"""State whose memory the update of a pipeline's stage takes for the next state."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from meshwright.features.pipeline.stages.lowered_step import LoweredStep
from meshwright.features.pipeline.stages.tasks import StageTasks, TaskProgram

type Programs = Sequence[tuple[LoweredStep, StageTasks]]


def with_donated_state(
    programs: Programs,
    placement: Sequence[int],
    ties: Mapping[int, int],
    donated: Collection[int],
) -> Programs:
    """The stages, whose updates take the memory of the state that callers donate.

    An update takes the memory of an input if it computes the input's next value, and if no
    later update of its stage and no other stage on its devices reads the input.
    placement: the submesh of each stage. ties: for outputs that are the next values of
        inputs, the position of the input. donated: positions of donated inputs.
    """
    found: list[tuple[LoweredStep, StageTasks]] = []
    for number, (step, tasks) in enumerate(programs):
        beside = [
            position
            for stage, (other, its_tasks) in enumerate(programs)
            if placement[stage] == placement[number] and stage != number
            for position in _read(other, its_tasks.every)
        ]
        updates: dict[int, TaskProgram] = {}
        for level, task in tasks.updates.items():
            later = (each for lv, each in tasks.updates.items() if lv > level)
            kept = {*beside, *_read(step, later)}
            given = {o: i for o, i in ties.items() if i in donated and i not in kept}
            places = tuple(dict.fromkeys(_replaced(step, task, given)))
            updates[level] = replace(task, donated=places)
        found.append((step, replace(tasks, updates=updates)))
    return found


def _read(step: LoweredStep, tasks: Iterable[TaskProgram]) -> Iterator[int]:
    """Positions of the step's inputs that tasks read."""
    number = {value: i for i, value in enumerate(step.lowered.program.inputs)}
    for task in tasks:
        yield from (number[value] for value in task.inputs if value in number)


def _replaced(
    step: LoweredStep, task: TaskProgram, ties: Mapping[int, int]
) -> Iterator[int]:
    """Positions of a task's inputs whose next values it computes."""
    program = step.lowered.program
    place = {value: i for i, value in enumerate(task.inputs)}
    for output, position in ties.items():
        value = program.inputs[position]
        if program.outputs[output] in task.outputs and value in place:
            yield place[value]
