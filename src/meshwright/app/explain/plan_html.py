"""A plan as HTML for a notebook: the figures, and sections that open on a click."""

from meshwright.app.explain.fold_leaves import fold_leaves
from meshwright.app.explain.loops import loop_notes
from meshwright.app.explain.overview import (
    LINE_TITLES,
    NO_MACHINE,
    figure_rows,
    line_rows,
    title_of,
    uncut_sections,
)
from meshwright.app.explain.show import show_plan
from meshwright.app.explain.unpriced import unpriced_note
from meshwright.app.output import notebook
from meshwright.app.record.plan_record import PlanRecord


def plan_html(plan: PlanRecord) -> str:
    """HTML with a plan's figures; its shardings and its printed page open on a click."""
    figures = plan.figures
    if figures is None:
        parts = [notebook.table(("",), [(NO_MACHINE,)])]
    else:
        parts = [
            notebook.table(("", ""), figure_rows(plan, figures)),
            notebook.table(LINE_TITLES, line_rows(figures)),
        ]
    if plan.unpriced:
        parts.append(notebook.table(("",), [(unpriced_note(plan.unpriced),)]))
    if plan.loops:
        parts.append(notebook.table(("",), [(n,) for n in loop_notes(plan.loops)]))
    parts += [
        notebook.block(title, notebook.table((">", ""), rows))
        for title, rows in uncut_sections(plan)
    ]
    cut = [leaf for leaf in plan.inputs if any(leaf.spec)]
    rows = [(*line.split(": ", 1), f"x{n}") for line, n in fold_leaves(cut)]
    inputs = notebook.table(("input", "sharding", ">leaves"), rows)
    parts += [
        notebook.folded(
            f"shardings of {len(cut)} of {len(plan.inputs)} inputs", inputs
        ),
        notebook.folded("the whole page", notebook.preformatted(show_plan(plan))),
    ]
    return notebook.block(title_of(plan), *parts)
