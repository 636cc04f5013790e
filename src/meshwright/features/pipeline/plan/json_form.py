"""The JSON form of a pipeline's plan: all its data except the programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshwright.app.tactic_text import parse_tactics
from meshwright.errors import PlanError
from meshwright.features.pipeline.plan.code import pipeline_code
from meshwright.features.pipeline.plan.pipeline_record import PipelineRecord
from meshwright.features.pipeline.planning.pipeline_stage import PipelineStage
from meshwright.features.pipeline.schedules.schedule import Schedule
from meshwright.features.pipeline.schedules.simulate import StageBytes, StageTimes
from meshwright.machine import Mesh
from meshwright.partitioner.tactics import Tactic
from meshwright.plain import Frame, hints_of

_TYPES: dict[str, Any] = {
    **hints_of(PipelineRecord),
    "candidates": tuple[tuple[str, str, str, str, str, str], ...],
}
"""Type annotations of the JSON fields."""

_FRAME = Frame(
    PlanError,
    "this is no plan of a pipeline",
    {"format": 3},
    derived=("peak_bytes", "code", "search"),
    prepare={
        Mesh: lambda shape, path: Mesh(shape),
        Schedule: lambda lines, path: Schedule.parse("\n".join(lines)),
        tuple[Tactic, ...]: lambda text, path: parse_tactics(text) if text else (),
    },
    positional=(StageTimes, StageBytes),
    indent=1,
    advice="the text that to_json gives; a file is read by mw.PipelineRecord.load(path)",
)
"""JSON texts of plans; those of other formats are refused."""


def pipeline_to_json(
    plan: PipelineRecord, candidates: Sequence[tuple[str, ...]]
) -> str:
    """JSON text of a plan; tactics and the schedule are written as text.

    candidates: the rows of the table of plans that the search simulated.
    """
    entries = _entries(plan) | {
        "stages": [_stage_entries(stage) for stage in plan.stages],
        "schedule": str(plan.schedule).splitlines(),
        "candidates": candidates,
    }
    derived = {"peak_bytes": plan.peak_bytes, "code": pipeline_code(plan).splitlines()}
    return _FRAME.write(entries, **derived)


def pipeline_fields(text: str) -> dict[str, Any]:
    """The fields of the plan in a JSON text; `PlanError` for any other text."""
    read = _FRAME.read(_TYPES, text)
    return read | {"recorded_candidates": read.pop("candidates")}


def _entries(record: Any) -> dict[str, Any]:
    """The compared fields of a record by name."""
    return {name: getattr(record, name) for name in hints_of(type(record))}


def _stage_entries(stage: PipelineStage) -> dict[str, Any]:
    """The fields of a stage; tactics are written as text."""
    entries = _entries(stage) | {
        "mesh": stage.mesh.shape,
        "tactics": _text(stage.tactics),
    }
    if stage.choice is not None:
        tactics = _text(stage.choice.tactics)
        entries["choice"] = _entries(stage.choice) | {"tactics": tactics}
    return entries


def _text(tactics: Sequence[Tactic]) -> str:
    return ", ".join(map(str, tactics))
