"""Predicted figures of a pipeline's tasks compared with those of the real compiler."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright.app.confirm.confirmation import (
    Confirmation,
    confirm_simulated,
)
from meshwright.app.output.table import Table
from meshwright.features.pipeline.plan.pipeline_record import PipelineRecord
from meshwright.machine.memory_size import show_bytes


@dataclass(frozen=True, slots=True)
class PipelineConfirmation:
    """The figures of each task of a pipeline: predicted, and as the compiler reports.

    tasks: triples (name of the stage, name of the task, its figures on one device).
    """

    machine: str
    num_devices: int
    usable_bytes: float
    tasks: tuple[tuple[str, str, Confirmation], ...]

    @property
    def compile_s(self) -> float:
        """Seconds that the compiler took for all tasks."""
        return sum(found.compile_s for _, _, found in self.tasks)

    def to_json(self) -> dict[str, Any]:
        """The figures as plain data for `json.dumps`, without the compiled programs."""
        return {
            "machine": self.machine,
            "num_devices": self.num_devices,
            "usable_bytes": self.usable_bytes,
            "tasks": [
                {"stage": stage, "task": task, **found.to_json()}
                for stage, task, found in self.tasks
            ],
        }

    def __str__(self) -> str:
        titles = ("stage", "task", ">predicted", ">compiled", ">difference", "")
        rows: list[tuple[str, ...]] = []
        for stage, task, found in self.tasks:
            sizes = found.predicted.peak_bytes, found.compiled.peak_bytes
            change = f"{100 * (sizes[0] / sizes[1] - 1):+.1f} %" if sizes[1] else ""
            fits = "" if found.compiled.fits else "DOES NOT FIT"
            rows.append((stage, task, *map(show_bytes, sizes), change, fits))
        return (
            f"{self.machine}, {self.num_devices} devices, compiled in "
            f"{self.compile_s:.1f} s; memory of each task on one device, of "
            f"{show_bytes(self.usable_bytes)}\n{Table(titles, tuple(rows))}"
        )


def confirm_tasks(
    plan: PipelineRecord, full: bool, timeout_s: float, folder: Path | None
) -> PipelineConfirmation:
    """Compile each simulated task of each stage for the devices of its submesh."""
    found = plan.simulated_step
    tasks: list[tuple[str, str, Confirmation]] = []
    for number, task in enumerate(found.tasks):
        kept = None if folder is None else folder / str(number)
        confirmed = confirm_simulated(
            task.decided, task.estimate, full, timeout_s, kept
        )
        tasks.append((plan.stages[task.stage].name, task.name, confirmed))
    usable = found.machine.chip.usable_bytes
    return PipelineConfirmation(
        found.machine.name, found.machine.num_devices, usable, tuple(tasks)
    )
