"""The first part of a printed plan: step time, memory, activities, and uncut work.

Uncut work is work that all devices along a mesh axis repeat.
"""

from collections.abc import Iterator

from meshwright.app.explain.loops import loop_notes
from meshwright.app.explain.unpriced import AT_LEAST, unpriced_note
from meshwright.app.output.collapse import group_by
from meshwright.app.output.numbers import (
    show_count,
    show_dollars,
    show_seconds,
    show_share,
    show_si,
)
from meshwright.app.output.table import columns
from meshwright.app.record.plan_record import PlanRecord
from meshwright.app.record.step_record import StepRecord
from meshwright.machine.memory_size import show_bytes
from meshwright.predict.figures import Figures

_LINES = 4
"""Most source lines, and most reasons for uncut work, that are shown."""
_TITLES = "2", "14", ""
"""Widths in characters of the margin, the titles at the left, and the figures."""
_LEAST = 0.005
"""Smallest share that is shown: of the step time for activities, of the FLOPs for
uncut work.
"""

_WHOLE = 0.99
"""Share of the FLOPs that counts as all; the smallest shares are not listed."""

_UNDIVIDED = 0.8
"""Share of the FLOPs that every axis leaves uncut, from which on the plan says so first.

With two axes at most twice the rest is divided."""

BOUNDS = {
    "matrix": "matrix unit",
    "vector": "vector unit",
    "memory": "memory",
    "launch": "launches",
}
"""Printed names of the resources that can limit a kernel's speed."""


def show_overview(plan: PlanRecord, full: bool = False) -> list[str]:
    """Lines of text on machine, step time, memory, slowest source lines and uncut work."""
    lines = [*undivided_lines(plan), title_of(plan), *show_figures(plan)]
    for title, rows in uncut_sections(plan, full):
        lines += ["", title, *columns(rows, (">9", ""), gap="  ")]
    return lines


def undivided_lines(plan: StepRecord) -> list[str]:
    """A line that says so if a search found a plan that divides hardly any work.

    Stages of a pipeline always divide the work.
    """
    if not isinstance(plan, PlanRecord):
        return []
    shares = {axis: 0.0 for axis, size in plan.mesh.sizes if size > 1}
    for work in plan.uncut:
        shares[work.axis] += work.share
    least = min(shares.values(), default=0.0)
    is_searched = plan.search is not None or bool(plan.recorded_candidates)
    if not is_searched or least < _UNDIVIDED:
        return []
    what = (
        "NO WORK IS" if least >= _WHOLE else f"{show_share(least)} OF THE WORK IS NOT"
    )
    how = "all of it" if least >= _WHOLE else "that much"
    return [
        f"{what} DIVIDED: each of the {plan.mesh.num_devices} devices computes {how}"
    ]


def show_figures(plan: StepRecord) -> list[str]:
    """Lines of text on the figures of a step, or on how to get them."""
    figures = plan.figures
    if figures is None:
        return [NO_MACHINE, *_notes(plan)]
    rows = (("", *row) for row in figure_rows(plan, figures))
    return [*columns(rows, _TITLES), *_longest(figures), *_notes(plan)]


def _notes(plan: StepRecord) -> list[str]:
    """Lines of text on ops of unknown cost, and on loops of unknown length."""
    notes = [unpriced_note(plan.unpriced)] if plan.unpriced else []
    notes += loop_notes(plan.loops)
    return ["", *notes] if notes else []


def title_of(plan: PlanRecord) -> str:
    """One line of text: the plan's name, its mesh, and the number and kind of devices."""
    name = f"{plan.name}: " if plan.name else ""
    of = "" if plan.figures is None else f" of {plan.figures.machine}"
    devices = f"{plan.mesh.num_devices} devices{of}"
    return f"{name}mesh {plan.mesh}, {devices}, gather {plan.gather.value}"


NO_MACHINE = (
    'for time and memory of a step, name a machine: plan.on("tpu-v5e"), or '
    "--machine tpu-v5e"
)
"""The advice that is shown for a plan without figures of a machine."""


def figure_rows(plan: StepRecord, figures: Figures) -> Iterator[tuple[str, str]]:
    """Pairs of a title and a text, one for each figure of a step."""
    least = AT_LEAST if plan.unpriced else ""
    mfu = f"MFU {'of the known work ' * bool(least)}{show_share(figures.mfu)}"
    if figures.hfu > figures.mfu:
        mfu += f" (HFU, with recomputation: {show_share(figures.hfu)})"
    speed = f"{least}{show_seconds(figures.step_time_s)}, {mfu}"
    tokens = show_tokens(plan, figures)
    yield "step", f"{speed}, {tokens}" if tokens else speed
    peak, usable = figures.peak_memory_bytes, figures.usable_bytes
    fits = ("may fit" if least else "fits") if figures.fits else "DOES NOT FIT"
    yield (
        "memory",
        f"{least}{show_bytes(peak)} of {show_bytes(usable)} on each device "
        f"({show_share(peak / usable)}): {fits}",
    )
    if figures.placement:
        yield "placement", figures.placement
    if figures.widened:
        yield "products", widened_text(figures)
    if plan.num_parameters:
        yield "parameters", show_count(plan.num_parameters)
    yield from activity_rows(figures)
    spent = [
        "" if figures.energy_j is None else show_si(figures.energy_j, "J"),
        "" if figures.cost_usd is None else show_dollars(figures.cost_usd),
        "" if figures.co2e_g is None else show_si(figures.co2e_g, "gCO2e"),
    ]
    if any(spent):
        yield "a step costs", least + ", ".join(filter(None, spent))


def widened_text(figures: Figures) -> str:
    """A note on dtypes that the chip's products do not have."""
    names = ", ".join(figures.widened)
    return f"{names} converted to float32, as {figures.machine} has no products of it"


def show_tokens(plan: StepRecord, figures: Figures) -> str:
    """Tokens per second over all devices, such as `1.2 k tokens/s`.

    The text is "" for a step without tokens or without time.
    """
    if not plan.tokens_per_step or not figures.step_time_s:
        return ""
    return f"{show_count(plan.tokens_per_step / figures.step_time_s)} tokens/s"


def activity_rows(figures: Figures) -> Iterator[tuple[str, str]]:
    """Pairs of a title and a text for computing, collectives and idle time."""
    step_s, parts = figures.step_time_s or 1.0, figures.breakdown

    def with_share(seconds: float) -> str:
        return f"{show_seconds(seconds)} ({show_share(seconds / step_s)})"

    bounds = ", ".join(
        f"{BOUNDS.get(name, name)} {show_seconds(seconds)}"
        for name, seconds in figures.compute_bounds.items()
        if seconds >= _LEAST * step_s
    )
    compute_s = parts.get("compute", 0.0)
    yield (
        "computing",
        with_share(compute_s) + (f", limited by {bounds}" if bounds else ""),
    )
    waits = {k: s for k, s in parts.items() if k.endswith(" exposed") and s}
    hidden_s = sum(s for k, s in parts.items() if k.endswith(" hidden"))
    if waits or hidden_s:
        kinds = ", ".join(
            f"{name.removesuffix(' exposed').replace('_', '-')} {show_seconds(seconds)}"
            for name, seconds in sorted(waits.items(), key=lambda item: -item[1])
            if seconds >= _LEAST * step_s
        )
        text = with_share(sum(waits.values())) + (f": {kinds}" if kinds else "")
        hidden = f"; {show_seconds(hidden_s)} more behind computing" if hidden_s else ""
        yield "collectives", text + hidden
    if bubble_s := parts.get("bubble", 0.0):
        yield "bubbles", f"{with_share(bubble_s)}: waiting for other stages"
    idle_s = parts.get("idle", 0.0) + parts.get("waiting", 0.0)
    if idle_s >= _LEAST * step_s:
        yield "idle", with_share(idle_s)


LINE_TITLES = (">of step", "source line", ">computing", ">collectives")


def line_rows(figures: Figures) -> list[tuple[str, ...]]:
    """Table rows for the source lines that take most of the step, under `LINE_TITLES`."""
    step_s = figures.step_time_s or 1.0
    return [
        (
            show_share(line.seconds / step_s),
            line.source or "no source line",
            show_seconds(line.compute_s),
            show_seconds(line.exposed_s),
        )
        for line in figures.lines[:_LINES]
        if line.seconds
    ]


def _longest(figures: Figures) -> list[str]:
    rows = line_rows(figures)
    if not rows:
        return []
    head = "source lines that take most", "computing", "collectives"
    return [
        "",
        *columns([head], ("30", ">12", ">13")),
        *columns(rows, (">9", "19", ">10", ">11"), gap="  "),
    ]


def uncut_sections(
    plan: PlanRecord, full: bool = False
) -> list[tuple[str, list[tuple[str, str]]]]:
    """For each mesh axis, a title and rows about the work that it does not cut.

    A row is a pair (share of the FLOPs, where the work is and why it is not cut).
    full: show the smallest shares, too.
    """
    sections: list[tuple[str, list[tuple[str, str]]]] = []
    for axis, work in group_by(plan.uncut, lambda each: each.axis).items():
        total = sum(each.share for each in work)
        shown = work if full else [w for w in work[:_LINES] if w.share >= _LEAST]
        rows = [
            (show_share(w.share), f"{w.kind} at {w.source}: {w.why}") for w in shown
        ]
        if rows:
            least = AT_LEAST if plan.unpriced else ""
            title = f"not cut along {axis!r}: {least}{show_share(total)} of the FLOPs"
            sections.append((title, rows))
    return sections
