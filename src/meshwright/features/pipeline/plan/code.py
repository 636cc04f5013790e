"""Python code of a call of `mw.pipeline` that makes a plan's pipeline again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from meshwright.features.pipeline.plan.pipeline_record import PipelineRecord
from meshwright.features.pipeline.stages.marks import StagePoint
from meshwright.partitioner.tactics import Tactic


def pipeline_code(plan: PipelineRecord) -> str:
    """Code that imports what it needs, and makes the pipelined function `step`."""
    arguments = [f"    {line}," for line in _arguments(plan)]
    used = "\n".join(arguments)
    imports = [line for name, line in _IMPORTS.items() if name in used]
    return "\n".join([*imports, "step = mw.pipeline(", *arguments, ")"])


_IMPORTS = {
    "Schedule.parse(": (
        "from meshwright.features.pipeline.schedules.schedule import Schedule"
    ),
    "StagePoint(": "from meshwright.features.pipeline.stages.marks import StagePoint",
}
"""Lines that import the names of arguments."""


def _arguments(plan: PipelineRecord) -> Iterator[str]:
    """The arguments of the call, each as code; those with default values are left out."""
    yield plan.name or "fn"
    meshes = {stage.submesh: stage.mesh.shape for stage in plan.stages}
    yield repr([dict(meshes[submesh]) for submesh in sorted(meshes)])
    tactics = {stage.name: stage.tactics for stage in plan.stages}
    if len(set(tactics.values())) == 1:
        yield _list(plan.stages[0].tactics)
    else:
        named = (f"{name!r}: {_list(each)}" for name, each in tactics.items())
        yield f"{{{', '.join(named)}}}"
    if isinstance(plan.starts, int):
        yield f"stages={plan.starts}"
    elif plan.starts is not None:
        yield f"stages=[{', '.join(map(_place, plan.starts))}]"
    yield f"microbatches={plan.num_microbatches}"
    own = f"Schedule.parse({str(plan.schedule)!r})"
    yield (
        f"schedule={plan.schedule_name!r}" if plan.schedule_name else f"schedule={own}"
    )
    if plan.batch:
        yield f"batch={list(plan.batch)!r}"
    if plan.statistics != "whole":
        yield f"statistics={plan.statistics!r}"


def _list(tactics: Sequence[Tactic]) -> str:
    return f"[{', '.join(map(repr, tactics))}]"


def _place(start: int | StagePoint) -> str:
    if isinstance(start, int):
        return str(start)
    return f"StagePoint({start.op}, {start.iteration})"
