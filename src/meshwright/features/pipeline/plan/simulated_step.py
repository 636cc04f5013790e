"""The simulated tasks of a pipeline's stages on a machine, before they are scheduled."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.features.pipeline.schedules.schedule import TaskKind
from meshwright.machine import Machine
from meshwright.partitioner.decide import Decided
from meshwright.predict.energy import Location
from meshwright.predict.estimate import Estimate


@dataclass(frozen=True, eq=False)
class SimulatedTask:
    """One task of a stage, simulated alone on the devices of the stage's submesh.

    name: such as "forward pass", "backward pass" or "update".
    kind: of a task that runs once for each microbatch; `None` for one that runs once.
    runs: executions in a step.
    kept_bytes: bytes of its results that wait for a backward pass of the stage.
    decided: the task's program, as of a step of its own.
    """

    stage: int
    name: str
    kind: TaskKind | None
    runs: int
    kept_bytes: float
    decided: Decided
    estimate: Estimate

    @property
    def working_bytes(self) -> float:
        """Bytes while it runs, beside its arguments and what it keeps for later."""
        found = self.estimate
        given = sum(map(found.layouts.size, found.program.inputs))
        return max(0.0, found.peak_memory_bytes - given - self.kept_bytes)


@dataclass(frozen=True, eq=False)
class SimulatedStep:
    """The tasks of all stages of a pipeline, simulated on a machine.

    machine: all devices of all submeshes. place: its location, for carbon.
    donate_state: whether state is donated that the function itself does not donate.
    """

    machine: Machine
    place: Location | None
    donate_state: bool
    tasks: tuple[SimulatedTask, ...]

    def of_stage(self, stage: int) -> list[SimulatedTask]:
        """The tasks of one stage, in the order in which a microbatch meets them."""
        return [task for task in self.tasks if task.stage == stage]
