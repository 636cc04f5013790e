"""A pipeline's plan as HTML: sections of the page of plans, and a notebook's output."""

from __future__ import annotations

from meshwright.app.explain.overview import (
    LINE_TITLES,
    NO_MACHINE,
    figure_rows,
    line_rows,
)
from meshwright.app.output import notebook
from meshwright.app.output.table import Table
from meshwright.app.record.step_record import figures_of
from meshwright.app.report import markup
from meshwright.app.report.markup import Tooltips
from meshwright.features.pipeline.plan.pipeline_record import PipelineRecord
from meshwright.features.pipeline.plan.text import (
    pipeline_text,
    stage_table,
    title_of,
)
from meshwright.features.pipeline.schedules.schedule_picture import schedule_svg
from meshwright.machine.memory_size import show_bytes


def pipeline_sections(plan: PipelineRecord, tips: Tooltips) -> tuple[str, ...]:
    """HTML sections: the schedule over time, the stages, their memory, source lines."""
    figures = figures_of(plan)
    wide = '<div class="wide">{}</div>'.format
    return (
        markup.section(
            "schedule",
            "Schedule of the step",
            "One row per submesh; time runs to the right. Blue: forward, orange: backward "
            "or gradients of inputs, green: gradients of weights, grey: idle. Point at a "
            "task to see its stage, microbatch and times. Updates follow the last task.",
            wide(schedule_svg(plan.simulate())),
        ),
        markup.section(
            "stages",
            "Stages",
            "Bytes are those of one device; kept and sent are those of one microbatch.",
            wide(stage_table(plan).to_html()),
        ),
        _memory(plan, tips),
        markup.section(
            "lines",
            "Source lines that take most of the step",
            "Seconds are means over the devices of all stages.",
            wide(Table(LINE_TITLES, tuple(line_rows(figures))).to_html()),
        ),
    )


def _memory(plan: PipelineRecord, tips: Tooltips) -> str:
    """HTML section: the peak memory of each submesh, beside its limit."""
    limit = figures_of(plan).usable_bytes
    peaks = plan.peak_bytes
    most = max(*peaks, limit)
    rows: list[str] = []
    for submesh, peak in enumerate(peaks):
        own = [stage for stage in plan.stages if stage.submesh == submesh]
        state = sum(stage.bytes.state for stage in own)
        names = ", ".join(stage.name for stage in own)
        tip = tips.add(f"state {show_bytes(state)} of the peak {show_bytes(peak)}")
        alarm = "" if peak <= limit else " alarm"
        rows.append(
            f"<tr {tip}><td>{submesh}: {markup.text(names)}</td>"
            f'<td class="n{alarm}">{show_bytes(peak)}</td>'
            f"{markup.numbers(f'{100 * peak / limit:.0f} %')}"
            f"{markup.bar('k-product', 100 * peak / most)}</tr>"
        )
    titles = ("submesh: stages", ">peak", ">of limit", "")
    return markup.section(
        "memory",
        "Memory per device",
        f"The limit is {show_bytes(limit)}. Red: the memory is not sufficient.",
        markup.table(titles, rows),
    )


def pipeline_html(plan: PipelineRecord) -> str:
    """HTML for a notebook: the figures, stages, and on a click the whole page."""
    figures = plan.figures
    if figures is None:
        parts = [notebook.table(("",), [(NO_MACHINE,)])]
    else:
        parts = [
            notebook.table(("", ""), figure_rows(plan, figures)),
            notebook.table(LINE_TITLES, line_rows(figures)),
        ]
    return notebook.block(
        title_of(plan),
        *parts,
        stage_table(plan).to_html(),
        notebook.folded("the whole page", notebook.preformatted(pipeline_text(plan))),
    )
