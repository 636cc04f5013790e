"""Pictures of a simulated pipeline schedule: text for a terminal, and SVG in HTML.

A row is a submesh (the devices of some stages); a task is one pass of one stage over one
microbatch.
"""

from meshwright.app.output.picture import box, page, svg
from meshwright.features.pipeline.schedules.schedule import TaskKind
from meshwright.features.pipeline.schedules.simulate import Simulation, TaskSpan

_WIDTH, _ROW, _MARGIN = 1200.0, 34.0, 70.0
_OUTLINE = 'stroke="#444" stroke-width="0.3"'

_COLORS = {
    TaskKind.FORWARD: "#6b9bd1",
    TaskKind.BACKWARD: "#e0a458",
    TaskKind.INPUT_GRADIENT: "#e0a458",
    TaskKind.WEIGHT_GRADIENT: "#8fbf7f",
}

_LEAD = (
    "One row per submesh; time runs to the right. Blue: forward, orange: backward or "
    "gradients of inputs, green: gradients of weights, grey: idle."
)


def schedule_text(found: Simulation, width: int = 100) -> str:
    """Text with one line per submesh: a letter for the task at each moment, `.` for idle.

    width: number of moments, which is the number of characters per line.
    """
    lines: list[str] = []
    for submesh, spans in enumerate(found.spans):
        letters = ["."] * width
        for span in spans:
            first, end = _moments(span, found.makespan_s, width)
            letters[first:end] = span.task.kind.value * (end - first)
        lines.append(f"{submesh:>3} {''.join(letters)}")
    return "\n".join(lines)


def _moments(span: TaskSpan, makespan_s: float, width: int) -> tuple[int, int]:
    """The first text column that a task's span covers, and the column after the last.

    The columns divide the whole time evenly. A column is covered if its middle lies in the
    span.
    """
    scale = width / makespan_s if makespan_s else 0.0
    return (
        int(span.start_s * scale + 0.5),
        min(width, int(span.end_s * scale + 0.5)),
    )


def schedule_svg(found: Simulation) -> str:
    """SVG with a rectangle for each task, whose tooltip has its name and times."""
    scale = _WIDTH / found.makespan_s if found.makespan_s else 0.0
    marks: list[str] = []
    for row, spans in enumerate(found.spans):
        top = row * _ROW
        marks.append(f'<text x="0" y="{top + 20}" font-size="13">submesh {row}</text>')
        marks.append(
            f'<rect x="{_MARGIN}" y="{top + 3}" width="{_WIDTH}" height="{_ROW - 6}" '
            'fill="#e8e8e8"/>'
        )
        for span in spans:
            note = f"{span.task}: {span.start_s * 1e3:.2f} to {span.end_s * 1e3:.2f} ms"
            corner = _MARGIN + span.start_s * scale, top + 3
            size = (span.end_s - span.start_s) * scale, _ROW - 6
            marks.append(box(corner, size, _COLORS[span.task.kind], note, _OUTLINE))
    return svg((_WIDTH + _MARGIN, _ROW * len(found.spans)), marks)


def schedule_page(text: str, found: Simulation) -> str:
    """An HTML page with text and the picture of the schedule."""
    return page("Pipeline", text, _LEAD, schedule_svg(found))
