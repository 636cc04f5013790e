"""The plan of a pipelined step: its stages, their submeshes and memory, its schedule."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from meshwright.app.output import notebook
from meshwright.app.output.numbers import show_count
from meshwright.app.output.table import Table
from meshwright.errors import PlanError
from meshwright.machine.memory_size import show_bytes
from meshwright.predict.schedules import Schedule, peak_activations

FORMAT = 1
"""Version of the JSON form; plans of other versions are refused."""

_WIDEST = 100
"""Columns of a printed schedule; the middle of longer lines is left out."""


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One stage; bytes are those of one device.

    submesh: number of its submesh. mesh: the axes of that. forward_flops,
        backward_flops: of one microbatch on all devices of the submesh.
    state_bytes: of the inputs that it reads, such as weights and optimizer state, and of
        totals over microbatches. kept_bytes: of what the backward pass of one microbatch
        needs. sent_bytes: of what other stages receive for one microbatch.
    working_bytes: the most that one of its tasks needs beside these.
    """

    name: str
    submesh: int
    mesh: str
    forward_flops: int
    backward_flops: int
    state_bytes: int
    kept_bytes: int
    sent_bytes: int
    working_bytes: int


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """A pipelined step: stages in order, and the schedule of their tasks.

    name: of the function.
    """

    name: str
    stages: tuple[StagePlan, ...]
    schedule: Schedule

    @property
    def num_microbatches(self) -> int:
        return self.schedule.num_microbatches

    @property
    def peak_memory_bytes(self) -> tuple[int, ...]:
        """The most bytes on a device of each submesh, by the schedule.

        No fusion is assumed, so that a compiled step needs less. Each stage of a submesh
        counts its own state; all microbatches in flight count as those of the stage that
        keeps most.
        """
        found: list[int] = []
        for submesh, flights in enumerate(peak_activations(self.schedule)):
            here = [s for s in self.stages if s.submesh == submesh]
            state = sum(stage.state_bytes for stage in here)
            kept = max(stage.kept_bytes for stage in here)
            working = max(stage.working_bytes for stage in here)
            found.append(state + flights * kept + working)
        return tuple(found)

    def table(self) -> Table:
        """One row for each stage."""
        titles = (
            "stage", "submesh", ">forward FLOP", ">backward FLOP", ">state",
            ">kept", ">sent", ">peak",
        )  # fmt: skip
        peaks = self.peak_memory_bytes
        rows = tuple(
            (
                stage.name,
                f"{stage.submesh}: {stage.mesh}",
                show_count(stage.forward_flops),
                show_count(stage.backward_flops),
                show_bytes(stage.state_bytes),
                show_bytes(stage.kept_bytes),
                show_bytes(stage.sent_bytes),
                show_bytes(peaks[stage.submesh]),
            )
            for stage in self.stages
        )
        return Table(titles, rows)

    @property
    def summary(self) -> str:
        """A line about the whole."""
        count = self.schedule.num_submeshes
        return (
            f"{self.name or 'step'}: {len(self.stages)} stages on {count} submeshes, "
            f"{self.num_microbatches} microbatches; bytes are those of one device, kept "
            "and sent of one microbatch"
        )

    def __str__(self) -> str:
        lines = [_shortened(line) for line in str(self.schedule).splitlines()]
        return "\n".join([self.summary, str(self.table()), *lines])

    def _repr_html_(self) -> str:
        table = self.table()
        return notebook.block(
            self.summary,
            notebook.table(table.titles, table.rows),
            notebook.preformatted(str(self.schedule)),
        )

    def to_json(self) -> str:
        """The plan as JSON text."""
        fields = {
            "format": FORMAT,
            "name": self.name,
            "stages": [asdict(stage) for stage in self.stages],
            "schedule": str(self.schedule),
        }
        return json.dumps(fields, indent=1)

    @staticmethod
    def from_json(text: str) -> PipelinePlan:
        """The plan of a JSON text; raises `PlanError` for any other text."""
        try:
            fields: Any = json.loads(text)
            if fields["format"] != FORMAT:
                raise PlanError(
                    f"the plan has format {fields['format']}; wanted {FORMAT}: make it "
                    "again with this version"
                )
            stages = tuple(StagePlan(**each) for each in fields["stages"])
            return PipelinePlan(
                str(fields["name"]), stages, Schedule.parse(fields["schedule"])
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PlanError(f"this is no plan of a pipeline: {error!r}") from error


def _shortened(line: str) -> str:
    if len(line) <= _WIDEST:
        return line
    half = _WIDEST // 2 - 3
    return f"{line[:half]} .... {line[-half:]}"
