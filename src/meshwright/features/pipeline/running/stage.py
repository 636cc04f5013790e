"""A pipeline stage on its submesh: its tasks as functions, and the values that it holds.

A task is one pass of a stage over one microbatch (forward or backward), or its update.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from meshwright.errors import StageError
from meshwright.features.pipeline.running.task_function import TaskLayout, task_function
from meshwright.features.pipeline.schedules.schedule import TaskKind
from meshwright.features.pipeline.stages.lowered_step import LoweredStep
from meshwright.features.pipeline.stages.tasks import StageTasks, TaskProgram
from meshwright.program.analysis.python_calls import python_calls
from meshwright.program.ir import Atom, Op, Value

if TYPE_CHECKING:
    from meshwright.features.pipeline.running.slice_devices import SliceDevices


@dataclass(frozen=True, eq=False)
class ProcessDevices:
    """Devices of this process, on which one stage keeps arrays and runs tasks.

    layout: shardings of the stage's arrays over a mesh of these devices.
    """

    layout: TaskLayout

    def put(self, array: Any, value: Value) -> Any:
        """Move an array to these devices, sharded like `value` of the stage."""
        return jax.device_put(array, self.layout.sharding(value))

    def function(self, task: TaskProgram, name: str) -> Callable[..., Sequence[Any]]:
        """A task as a jitted function of arrays on these devices.

        name: what error messages call the task; not needed here, since an error is
            raised where the task is called.
        """
        del name
        return task_function(task, self.layout)

    def concatenate(self, arrays: Sequence[Any], dim: int, value: Value) -> Any:
        """Concatenate arrays along `dim`, each of them sharded like `value`."""
        del value  # JAX finds the sharding
        return jnp.concatenate(arrays, dim)


type StageDevices = ProcessDevices | SliceDevices
"""The devices of one stage, which keep its arrays and run its tasks."""


@dataclass(frozen=True, eq=False)
class StageProgram:
    """One stage of a pipeline: its tasks, and the devices on which they run.

    number: position of the stage. step: the lowered step that the tasks are parts of.
    """

    name: str
    number: int
    step: LoweredStep
    tasks: StageTasks
    devices: StageDevices
    _functions: dict[TaskProgram, Callable[..., Any]] = field(default_factory=dict)

    def task(self, kind: TaskKind) -> TaskProgram:
        """The program of a task of this kind, such as a forward pass."""
        return getattr(self.tasks, kind.name.lower())

    def function(self, task: TaskProgram, what: str) -> Callable[..., Any]:
        """The task as a function of arrays, created at its first use.

        what: what error messages call the task, such as "forward pass".
        """
        if task not in self._functions:
            name = f"stage {self.name!r}, {what} ({first_line(task)})"
            self._functions[task] = self.devices.function(task, name)
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

    once: by value, arrays that all microbatches share, and sums over the microbatches
        so far.
    of: by microbatch and value, arrays that belong to one microbatch.
    """

    program: StageProgram
    once: dict[Atom, Any] = field(default_factory=dict[Atom, Any])
    of: dict[int, dict[Atom, Any]] = field(default_factory=dict[int, dict[Atom, Any]])

    def run_once(self, task: TaskProgram, what: str) -> None:
        """Run a task that belongs to no microbatch, such as the update."""
        results = self._run(task, [self.once[v] for v in task.inputs], what)
        self.once.update(zip(task.outputs, results, strict=True))

    def run(self, task: TaskProgram, microbatch: int, what: str) -> Mapping[Atom, Any]:
        """Run a task for one microbatch; returns its results by value.

        Results that are added up over microbatches update `once` instead.
        """
        if not task.outputs and not task.program.ops:
            return {}
        mine = self.of[microbatch]
        given = [mine[v] if v in mine else self.once[v] for v in task.inputs]
        results = self._run(task, given, what, f" of microbatch {microbatch}")
        found = dict(zip(task.outputs, results, strict=True))
        for output, place in task.totals.items():
            self.once[task.inputs[place]] = found.pop(task.outputs[output])
        mine.update(found)
        return found

    def _run(
        self, task: TaskProgram, given: list[Any], what: str, which: str = ""
    ) -> Sequence[Any]:
        try:
            results = self.program.function(task, what)(*given)
            if _calls(task):  # Python may fail later: wait, to name this task
                jax.block_until_ready(results)
        except Exception as error:
            text = str(error).strip().splitlines()
            raise StageError(
                f"stage {self.program.name!r} failed in the {what}{which} "
                f"({first_line(task)}): {type(error).__name__}: {text[-1] if text else ''}"
            ) from error
        return results


def first_line(task: TaskProgram) -> str:
    """A task's first op and its source line, for error messages.

    An op that calls Python goes before others.
    """
    ops = [op for op in _calls(task) or task.program.ops if str(op.source)]
    return f"{ops[0].kind} at {ops[0].source}" if ops else "unknown source line"


def _calls(task: TaskProgram) -> list[Op]:
    """The ops of a task that call Python."""
    return python_calls(task.program)
