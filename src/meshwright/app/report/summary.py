"""The report's first section: figures of a step, its time by activity, other plans."""

from collections.abc import Sequence

from meshwright.app.explain.candidates import candidate_table, won_text
from meshwright.app.explain.loops import loop_notes
from meshwright.app.explain.overview import (
    BOUNDS,
    show_tokens,
    undivided_lines,
    widened_text,
)
from meshwright.app.explain.unpriced import AT_LEAST, unpriced_note
from meshwright.app.output.numbers import (
    show_count,
    show_dollars,
    show_seconds,
    show_share,
    show_si,
)
from meshwright.app.output.table import Table
from meshwright.app.record.step_record import StepRecord, figures_of
from meshwright.app.report import markup
from meshwright.app.report.markup import KINDS, NONE, TIMES, Tooltips, text
from meshwright.machine.memory_size import show_bytes
from meshwright.predict.figures import Figures

_SMALLEST = 1e-6
"""Activities with a smaller share of the step time than this are not shown."""
_CANDIDATES = 12
"""Most simulated plans of a search that are shown at once."""


def draw_summary(plan: StepRecord, tips: Tooltips) -> str:
    """HTML section: cards with figures of a step, and bars of how its time is spent."""
    figures = figures_of(plan)
    cards = "".join(_card(*texts) for texts in _cards(plan, figures))
    bars = _breakdown(figures, tips) + _bounds(figures, tips)
    first = "".join(f'<p class="alarm">{text(t)}</p>' for t in undivided_lines(plan))
    if plan.search is not None:
        first += f"<p>{text(won_text(plan.search))}</p>"
    notes = [unpriced_note(plan.unpriced)] if plan.unpriced else []
    notes += loop_notes(plan.loops)
    if figures.widened:
        notes.append(f"Products: {widened_text(figures)}.")
    shown = f'<div class="cards">{cards}</div>'
    shown += "".join(f"<p>{text(note)}</p>" for note in notes)
    return f'<section id="summary">{first}{shown}{bars}</section>'


def _cards(plan: StepRecord, figures: Figures) -> list[tuple[str, str, str]]:
    """The cards at the top of the report, each a title, a figure and a remark."""
    share = figures.peak_memory_bytes / figures.usable_bytes
    least = AT_LEAST if plan.unpriced else ""
    fits = ("may fit" if least else "fits") if figures.fits else "does not fit"
    power = "the power of this machine is unknown"
    price = "the price of this machine is unknown"
    again = (
        f"; with recomputation {show_share(figures.hfu)} (HFU)"
        if figures.hfu > figures.mfu
        else ""
    )
    drawn = "all devices, at peak power" if figures.is_peak_power else "all devices"
    return [
        ("step time", least + show_seconds(figures.step_time_s), "simulated"),
        (
            "throughput",
            show_tokens(plan, figures) or NONE,
            f"{plan.tokens_per_step:,} tokens a step"
            if plan.tokens_per_step
            else "the step has no tokens",
        ),
        (
            "model FLOPs utilisation",
            show_share(figures.mfu),
            f"of the 16-bit peak{again}",
        ),
        (
            "parameters",
            show_count(plan.num_parameters) if plan.num_parameters else NONE,
            "before they are partitioned",
        ),
        (
            "memory per device",
            least + show_bytes(figures.peak_memory_bytes),
            f"{fits}: {show_share(share)} of {show_bytes(figures.usable_bytes)}",
        ),
        ("energy per step", *_or_none(figures.energy_j, "J", drawn, power)),
        (
            "price per step",
            _price(figures),
            "at list price" if figures.cost_usd else price,
        ),
        (
            "CO₂ equivalent per step",
            *_or_none(
                figures.co2e_g,
                "g",
                f"grid of {figures.place}",
                power if figures.place else "the plan names no place",
            ),
        ),
    ]


def _price(figures: Figures) -> str:
    return NONE if figures.cost_usd is None else show_dollars(figures.cost_usd)


def _or_none(value: float | None, unit: str, said: str, why: str) -> tuple[str, str]:
    return (NONE, why) if value is None else (show_si(value, unit), said)


def _card(title: str, number: str, remark: str) -> str:
    alarm = " alarm" if remark.startswith("does not fit") else ""
    return (
        f'<div class="card{alarm}"><h3>{text(title)}</h3>'
        f"<strong>{text(number)}</strong><small>{text(remark)}</small></div>"
    )


def exposed_s(figures: Figures) -> float:
    """Seconds per step of communication that does not overlap with computation."""
    return sum(s for name, s in figures.breakdown.items() if name.endswith("exposed"))


def _breakdown(figures: Figures, tips: Tooltips) -> str:
    """An HTML bar of the step time by activity; overlapped communication is left out."""
    parts: list[tuple[str, str, float]] = []
    for name, seconds in _filled(figures):
        kind, _, how = name.partition(" ")
        look = "k-product" if kind == "compute" else f"k-{kind}"
        shown = KINDS.get(kind, kind) + (f", {how}" if how else "")
        parts.append((look, shown, seconds))
    return _bar(parts, figures.step_time_s, tips)


def _bounds(figures: Figures, tips: Tooltips) -> str:
    """An HTML bar of the compute time, by the resource that limits the kernels."""
    total = sum(figures.compute_bounds.values())
    parts = [
        (f"b-{name}", f"limited by {BOUNDS.get(name, name)}", seconds)
        for name, seconds in figures.compute_bounds.items()
        if seconds > _SMALLEST * total
    ]
    bar = _bar(parts, total, tips) if parts else ""
    return bar and f"<h3>Computation by what limits it</h3>{bar}"


def _bar(parts: Sequence[tuple[str, str, float]], total: float, tips: Tooltips) -> str:
    """An HTML bar with a legend.

    parts: triples (CSS class, name, seconds). total: seconds of the whole bar.
    """
    marks: list[str] = []
    chips: list[str] = []
    for look, shown, seconds in parts:
        share = seconds / total
        tip = tips.add(shown, f"{show_seconds(seconds)}, {show_share(share)}")
        marks.append(f'<i class="{look}" style="flex-grow:{share:.5f}" {tip}></i>')
        figure = f"<b>{show_seconds(seconds)}</b> {show_share(share)}"
        chips.append(markup.chip(look, f"{text(shown)} {figure}"))
    return f'<div class="breakdown">{"".join(marks)}</div>{markup.legend(chips)}'


def _filled(figures: Figures) -> list[tuple[str, float]]:
    """Pairs of an activity and its seconds: computing first, then by time, waiting last."""
    named = [
        (name, s)
        for name, s in figures.breakdown.items()
        if s > _SMALLEST * figures.step_time_s and not name.endswith("hidden")
    ]
    first = {"compute": -1, "bubble": 1, "idle": 2, "waiting": 3}
    return sorted(named, key=lambda item: (first.get(item[0], 0), -item[1]))


def draw_comparison(plans: Sequence[StepRecord]) -> str:
    """HTML section: a table of plans with their machines; "" for fewer than two plans."""
    if len(plans) < 2:
        return ""
    figures = [figures_of(plan) for plan in plans]
    longest = max(f.step_time_s for f in figures)
    rows = [
        _row(plan, each, longest) for plan, each in zip(plans, figures, strict=True)
    ]
    titles = (
        "machine", "mesh", ">step time", "", ">MFU", ">memory", ">of limit",
        ">exposed communication", ">energy", ">price", ">CO₂e",
    )  # fmt: skip
    return markup.section(
        "comparison",
        "On other machines",
        "The first row is the plan of this page. Red: the memory is not sufficient.",
        f'<div class="wide">{markup.table(titles, rows)}</div>',
    )


def _row(plan: StepRecord, figures: Figures, longest: float) -> str:
    machine, least = plan.machine, AT_LEAST if plan.unpriced else ""
    share = figures.peak_memory_bytes / figures.usable_bytes
    energy = _or_none(figures.energy_j, "J", "", "")[0]
    carbon = _or_none(figures.co2e_g, "g", "", "")[0]
    cells = [
        f"<td>{text(machine.title)} {TIMES} {machine.num_devices}</td>",
        f"<td>{text(plan.layout.removeprefix('mesh '))}</td>",
        markup.numbers(least + show_seconds(figures.step_time_s)),
        markup.bar("k-product", 100 * figures.step_time_s / longest),
        markup.numbers(
            show_share(figures.mfu), least + show_bytes(figures.peak_memory_bytes)
        ),
        f'<td class="n{"" if figures.fits else " alarm"}">{show_share(share)}</td>',
        markup.numbers(
            show_seconds(exposed_s(figures)), energy, _price(figures), carbon
        ),
    ]
    return f"<tr>{''.join(cells)}</tr>"


def draw_candidates(plan: StepRecord) -> str:
    """HTML section: a table of the plans that the search simulated; "" without a search."""
    if plan.search is None:
        return ""
    table = candidate_table(plan.search)
    first, rest = (
        Table(table.titles, rows).to_html()
        for rows in (table.rows[:_CANDIDATES], table.rows[_CANDIDATES:])
    )
    return markup.section(
        "candidates",
        "Plans that the search compared",
        "The first is the plan of this page. Plans of equal time and memory are one row.",
        first + markup.more(len(table.rows) - _CANDIDATES, rest),
    )
