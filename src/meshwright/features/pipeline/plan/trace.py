"""The schedule of a pipeline as trace events, one process for each submesh."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meshwright.app.record.step_record import figures_of
from meshwright.app.report.trace_events import (
    memory_event,
    named_threads,
    span_event,
)
from meshwright.features.pipeline.plan.pipeline_record import PipelineRecord
from meshwright.features.pipeline.schedules.schedule import TaskKind
from meshwright.features.pipeline.schedules.simulate import TaskSpan, released_bytes

Event = dict[str, Any]

_THREAD = 1
"""Number of the thread of tasks, the only one of a submesh."""


def pipeline_events(plan: PipelineRecord, first: int) -> list[Event]:
    """Trace events of the simulated schedule; `first`: number of the first process.

    A task is an event; the live memory of one device is a counter. The work that a submesh
    does once a step follows its last task.
    """
    machine = figures_of(plan).machine
    events: list[Event] = []
    for submesh, spans in enumerate(plan.simulate().spans):
        pid = first + submesh
        mesh = next(s.mesh for s in plan.stages if s.submesh == submesh)
        title = f"{machine}, submesh {submesh} of {plan.schedule.num_submeshes}, {mesh}"
        events += named_threads(pid, title, ("tasks",))
        events += _tasks(plan, pid, spans)
        events += _once(plan, pid, submesh, spans[-1].end_s)
    return events


def _tasks(
    plan: PipelineRecord, pid: int, spans: tuple[TaskSpan, ...]
) -> Iterator[Event]:
    """The tasks of one submesh, and its memory while each of them runs."""
    submesh = plan.schedule.placement[spans[0].task.stage]
    own = [stage.bytes for stage in plan.stages if stage.submesh == submesh]
    held = sum(each.state for each in own)
    working = max(each.working for each in own)
    for span in spans:
        task, stage = span.task, plan.stages[span.task.stage]
        name = task.kind.name.lower().replace("_", " ")
        args = {"stage": stage.name, "microbatch": task.microbatch}
        times = span.start_s, span.end_s
        yield span_event(pid, _THREAD, f"{name} {task}", times, cat=name, args=args)
        if task.kind is TaskKind.FORWARD:
            held += stage.bytes.activations
        yield memory_event(pid, span.start_s, held + working)
        held -= released_bytes(task.kind, stage.bytes)
        yield memory_event(pid, span.end_s, held)


def _once(
    plan: PipelineRecord, pid: int, submesh: int, end_s: float
) -> Iterator[Event]:
    """The work that the stages of a submesh do once a step, behind their last task."""
    for stage in plan.stages:
        if stage.submesh == submesh and stage.once_s:
            times = end_s, end_s + stage.once_s
            args = {"stage": stage.name}
            yield span_event(pid, _THREAD, "once a step", times, cat="once", args=args)
            end_s += stage.once_s
