"""The HTML page about a plan: all sections in order, with style and script embedded.

`make_page` calls one function per section; each kind of plan has sections of its own.
"""

from collections.abc import Sequence
from importlib import resources
from os import PathLike
from string import Template

from meshwright.app.output.files import output_file, write_file
from meshwright.app.record.plan_record import PlanRecord
from meshwright.app.record.step_record import StepRecord
from meshwright.app.report.collectives import draw_collectives, draw_waterfall
from meshwright.app.report.markup import TIMES, Tooltips, text
from meshwright.app.report.roofline import draw_roofline
from meshwright.app.report.shardings import draw_shardings
from meshwright.app.report.summary import draw_candidates, draw_comparison, draw_summary
from meshwright.app.report.timeline import draw_timeline


def write_report(
    plan: StepRecord, path: str | PathLike[str], others: Sequence[StepRecord] = ()
) -> None:
    """Write the HTML page about a plan; `PlanError` if the file cannot be written."""
    target = output_file(path)
    # Paths of the user's code may hold bytes that are no UTF-8.
    write_file(target, make_page(plan, others).encode("utf-8", "xmlcharrefreplace"))


def make_page(plan: StepRecord, others: Sequence[StepRecord] = ()) -> str:
    """The HTML page about a plan's simulated step.

    others: plans with which a table compares this one.
    Raises `PlanError` for a plan that names no machine, or that was read from JSON.
    """
    machine = plan.machine
    tips = Tooltips()
    parts = (
        draw_summary(plan, tips),
        draw_comparison((plan, *others)),
        draw_candidates(plan),
        *plan.sections(tips),
    )
    return Template(_read("page.html")).substitute(
        title=text(f"{plan.name or 'Plan'} on {machine.title}"),
        name=text(plan.name or "Plan"),
        machine=text(f"{machine.title} {TIMES} {machine.num_devices}"),
        mesh=text(plan.layout),
        style=_read("page.css"),
        parts="\n".join(parts),
        tips=tips.to_json(),
        script=_read("page.js"),
    )


def plan_sections(plan: PlanRecord, tips: Tooltips) -> tuple[str, ...]:
    """HTML sections about the simulated step of a plan on one mesh."""
    return (
        draw_timeline(plan, tips),
        draw_collectives(plan, tips),
        draw_roofline(plan, tips),
        draw_waterfall(plan, tips),
        draw_shardings(plan, tips),
    )


def _read(name: str) -> str:
    return (resources.files("meshwright.app.report") / name).read_text("utf-8")
