"""A pipeline's plan as a page of text: figures, a table of stages, and the schedule."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby

from meshwright.app.explain.overview import show_figures
from meshwright.app.output.numbers import show_count, show_seconds, show_share
from meshwright.app.output.table import Table
from meshwright.features.pipeline.plan.pipeline_record import PipelineRecord
from meshwright.features.pipeline.planning.pipeline_stage import PipelineStage
from meshwright.features.pipeline.schedules.schedule_picture import schedule_text
from meshwright.machine.memory_size import show_bytes

_WIDEST = 100
"""Most characters per line of a printed schedule; longer lines lose their middle."""

_TACTICS = 48
"""Most characters of a stage's tactics in the table."""


def pipeline_text(plan: PipelineRecord, full: bool = False) -> str:
    """The plan as a page of text; full: the whole schedule, task by task."""
    lines = [title_of(plan), *show_figures(plan), "", _REMARK, str(stage_table(plan))]
    notes = dict.fromkeys((*plan.notes, *(plan.search.notes if plan.search else ())))
    if notes:
        lines += ["", "notes", *(f"  {note}" for note in notes)]
    tasks = str(plan.schedule).splitlines()
    if full:
        shown = tasks
    elif plan.figures is None:
        shown = [_shortened(line) for line in tasks]
    else:
        shown = schedule_text(plan.simulate()).splitlines()
    return "\n".join([*lines, "", "schedule, a line for each submesh", *shown])


_REMARK = "stages: bytes are those of one device, kept and sent of one microbatch"


def title_of(plan: PipelineRecord) -> str:
    """One line: the plan's name, stages, microbatches, schedule and devices."""
    name = plan.name or "step"
    machine = "" if plan.figures is None else f" of {plan.figures.machine}"
    schedule = plan.schedule_name or "a schedule of its own"
    return (
        f"{name}: {plan.layout}, {plan.num_microbatches} microbatches, {schedule}, "
        f"{plan.num_devices} devices{machine}"
    )


def stage_table(plan: PipelineRecord) -> Table:
    """A table of the stages: submesh, work, time, and memory.

    Memory is that of the stage's submesh, next to its limit if there is one. Stages one
    after another that differ in nothing but the peak of their submeshes are one row.
    """
    titles = (
        "stage", "devices", "tactics", ">forward", ">backward", ">once", ">state", ">kept",
        ">sent", ">peak", "of limit",
    )  # fmt: skip
    runs = groupby(plan.stages, key=partial(_same, plan))
    return Table(titles, tuple(_row(plan, tuple(run)) for _, run in runs))


def _same(plan: PipelineRecord, stage: PipelineStage) -> tuple[object, ...]:
    """What the stages of one row have in common."""
    strategy = "" if stage.choice is None else stage.choice.strategy
    return stage.mesh, strategy or _tactics(stage), *_work_cells(plan, stage)


def _row(plan: PipelineRecord, stages: Sequence[PipelineStage]) -> tuple[str, ...]:
    """The cells of stages that are alike."""
    first, last = stages[0], stages[-1]
    peaks = [plan.peak_bytes[stage.submesh] for stage in stages]
    least, most = min(peaks), max(peaks)
    names, devices, tactics = first.name, _devices(first), _tactics(first)
    if len(stages) > 1:
        names = f"{first.name} to {last.name}"
        submeshes = sorted({stage.submesh for stage in stages})
        devices = f"{submeshes[0]} to {submeshes[-1]}: {first.mesh}"
        if first.choice is not None and last.choice is not None:
            layers = first.choice.layers[0], last.choice.layers[1] - 1
            tactics = f"{first.choice.strategy}, layers {layers[0]}-{layers[1]}"
    peak, limit = show_bytes(most), memory_limit(plan)
    if least < most:
        peak = f"{show_bytes(least)} to {peak}"
    share = ""
    if limit is not None:
        share = f"{show_share(most / limit)} of {show_bytes(limit)}"
        share += ": DOES NOT FIT" * (most > limit)
    return names, devices, tactics, *_work_cells(plan, first), peak, share


def memory_limit(plan: PipelineRecord) -> float | None:
    """Bytes of a device that the plan may use; `None` if nobody has said."""
    return plan.limit_bytes if plan.figures is None else plan.figures.usable_bytes


def _work_cells(plan: PipelineRecord, stage: PipelineStage) -> tuple[str, ...]:
    """The cells of a stage's work, times, and bytes of its own."""
    is_timed, work = plan.figures is not None, stage.work
    forward = backward = sent = ""
    if work is not None:
        forward, backward = (
            f"{show_count(flops)}FLOP"
            for flops in (work.forward_flops, work.backward_flops)
        )
        sent = show_bytes(work.sent_bytes)
    if is_timed:
        times = stage.times
        forward = show_seconds(times.forward_s)
        backward = show_seconds(times.total_s - times.forward_s)
    once = show_seconds(stage.once_s) if is_timed else ""
    state, kept = show_bytes(stage.bytes.state), show_bytes(stage.bytes.activations)
    return forward, backward, once, state, kept, sent


def _devices(stage: PipelineStage) -> str:
    """The submesh of a stage: its number, its mesh, and for planned stages its devices."""
    text = f"{stage.submesh}: {stage.mesh}"
    if stage.choice is None:
        return text
    first = stage.choice.first_device
    return f"{text} ({first}-{first + stage.mesh.num_devices - 1})"


def _tactics(stage: PipelineStage) -> str:
    """The strategy and the layers of a planned stage, or the tactics of a built one."""
    if stage.choice is not None:
        first, end = stage.choice.layers
        return f"{stage.choice.strategy}, layers {first}-{end - 1}"
    text = ", ".join(map(str, stage.tactics))
    return text if len(text) <= _TACTICS else f"{text[: _TACTICS - 4]} ..."


def _shortened(line: str) -> str:
    if len(line) <= _WIDEST:
        return line
    half = _WIDEST // 2 - 3
    return f"{line[:half]} .... {line[-half:]}"
