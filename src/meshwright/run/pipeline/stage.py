"""A pipeline stage on its submesh: its tasks as functions, and the values that it holds.

A task is one pass of a stage over one microbatch (forward or backward), or its update.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from meshwright.errors import StageError
from meshwright.partitioner.stages import LoweredStep, StageTasks, TaskProgram
from meshwright.predict.schedules import TaskKind
from meshwright.program.ir import Atom, Value
from meshwright.run.pipeline.task_function import TaskLayout, task_function

NAMES = {
    TaskKind.FORWARD: "forward",
    TaskKind.BACKWARD: "backward",
    TaskKind.INPUT_GRADIENT: "input_gradient",
    TaskKind.WEIGHT_GRADIENT: "weight_gradient",
}
"""The field of `StageTasks` for each kind of task of a schedule."""


@dataclass(frozen=True, eq=False)
class StageProgram:
    """A stage with its tasks, its submesh, and the lowered step that they are part of."""

    name: str
    number: int
    step: LoweredStep
    tasks: StageTasks
    layout: TaskLayout
    _functions: dict[TaskProgram, Callable[..., Any]] = field(default_factory=dict)

    def task(self, kind: TaskKind) -> TaskProgram:
        """The task program for a kind of task in a schedule."""
        return getattr(self.tasks, NAMES[kind])

    def function(self, task: TaskProgram) -> Callable[..., Any]:
        """The task as a jitted function, which is compiled when it is first called."""
        if task not in self._functions:
            self._functions[task] = task_function(task, self.layout)
        return self._functions[task]

    @cached_property
    def read(self) -> Collection[Value]:
        """The values that at least one task of the stage reads."""
        return dict.fromkeys(
            value for task in self.tasks.every for value in task.inputs
        )


@dataclass(eq=False)
class StageValues:
    """The arrays that a stage holds during one step.

    once: arrays of values that all microbatches share, and of totals over microbatches
        so far, by value.
    of: arrays that belong to one microbatch, by microbatch and value.
    """

    program: StageProgram
    once: dict[Atom, Any] = field(default_factory=dict[Atom, Any])
    of: dict[int, dict[Atom, Any]] = field(default_factory=dict[int, dict[Atom, Any]])

    def run_once(self, task: TaskProgram, what: str) -> None:
        """Run a task that belongs to no microbatch, such as the update."""
        results = self._run(task, [self.once[v] for v in task.inputs], what)
        self.once.update(zip(task.outputs, results, strict=True))

    def run(self, task: TaskProgram, microbatch: int, what: str) -> Mapping[Atom, Any]:
        """The results of a task for one microbatch; totals are updated in place."""
        if not task.outputs and not task.program.ops:
            return {}
        mine = self.of[microbatch]
        given = [mine[v] if v in mine else self.once[v] for v in task.inputs]
        results = self._run(task, given, f"{what} of microbatch {microbatch}")
        found = dict(zip(task.outputs, results, strict=True))
        for output, place in task.totals.items():
            self.once[task.inputs[place]] = found.pop(task.outputs[output])
        mine.update(found)
        return found

    def _run(self, task: TaskProgram, given: list[Any], what: str) -> tuple[Any, ...]:
        try:
            results = self.program.function(task)(*given)
            calls = [op for op in task.program.walk() if "callback" in op.kind]
            if calls:  # only Python can fail while a program runs: find out which has
                for result in results:
                    result.block_until_ready()
        except Exception as error:
            raise StageError(self._message(task, what, error)) from error
        return results

    def _message(self, task: TaskProgram, what: str, error: Exception) -> str:
        calls = [op for op in task.program.walk() if "callback" in op.kind]
        lines = dict.fromkeys(str(op.source) for op in calls or task.program.ops)
        place = next(filter(None, lines), "unknown source line")
        text = str(error).strip().splitlines()
        return (
            f"stage {self.program.name!r} failed in the {what} ({place}): "
            f"{type(error).__name__}: {text[-1] if text else ''}"
        )
