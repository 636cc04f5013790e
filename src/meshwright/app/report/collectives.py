"""Two sections of the report: collectives by source line, and after each tactic."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.app.explain.names import shorten
from meshwright.app.output.collapse import collapse, group_by
from meshwright.app.output.numbers import show_seconds
from meshwright.app.record.parts import TacticEffect
from meshwright.app.record.plan_record import PlanRecord, estimate_of, program_of
from meshwright.app.report import markup
from meshwright.app.report.markup import KINDS, NONE, TIMES, Tooltips, text
from meshwright.machine.memory_size import show_bytes
from meshwright.partitioner.lower import executions
from meshwright.predict.simulate.timeline import collective_overlaps
from meshwright.program.ir import Op

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class LineCollectives:
    """The collectives of one kind along the same mesh axes that one source line causes.

    executions, num_bytes, seconds: totals over a step.
    hidden_s: the part of `seconds` that overlaps with computation.
    """

    source: str
    kind: str
    axes: tuple[str, ...]
    reasons: tuple[str, ...]
    executions: int
    num_bytes: int
    seconds: float
    hidden_s: float

    @property
    def exposed_s(self) -> float:
        """Seconds per step of these collectives that do not overlap with computation."""
        return max(0.0, self.seconds - self.hidden_s)  # rounding may make it < 0


def collectives_by_line(plan: PlanRecord) -> list[LineCollectives]:
    """The collectives of a step, grouped by source line, the longest exposed time first."""
    estimate, decided = estimate_of(plan), program_of(plan)
    seconds_of, hidden_s = defaultdict[Op, float](float), defaultdict[Op, float](float)
    for fusion, exposed, hidden in collective_overlaps(estimate.timeline):
        op = estimate.origins.get(fusion.root, fusion.root)
        seconds_of[op] += exposed + hidden
        hidden_s[op] += hidden
    ops = [op for op, _ in executions(decided.lowered.program)]
    groups = group_by(
        zip(ops, plan.collectives, strict=True),
        lambda pair: (pair[1].source, pair[1].kind, pair[1].axes),
    )
    lines = [
        LineCollectives(
            *key,
            tuple(dict.fromkeys(c.reason for _, c in pairs)),
            sum(c.executions for _, c in pairs),
            sum(c.executions * c.bytes for _, c in pairs),
            sum(seconds_of[op] for op, _ in pairs),
            sum(hidden_s[op] for op, _ in pairs),
        )
        for key, pairs in groups.items()
    ]
    return sorted(lines, key=lambda m: (-m.exposed_s, -m.seconds, -m.num_bytes))


def draw_collectives(plan: PlanRecord, tips: Tooltips) -> str:
    """HTML section: a table of collectives by source line with a bar of time per row."""
    rows = collectives_by_line(plan)
    if not rows:
        lead = "The step has no collectives."
        return markup.section("collectives", "Collectives by source line", lead, "")
    lead = (
        f"{sum(row.executions for row in rows)} executions per step, "
        f"{show_seconds(sum(row.seconds for row in rows))} on the links. Solid bars: "
        "exposed time, in which nothing is computed. Pale bars: time hidden behind "
        "computation."
    )
    longest = max(row.seconds for row in rows) or 1.0
    body = _table(rows[:_SHOWN], longest, tips)
    body += markup.more(len(rows) - _SHOWN, _table(rows[_SHOWN:], longest, tips))
    return markup.section("collectives", "Collectives by source line", lead, body)


def _table(rows: Sequence[LineCollectives], longest: float, tips: Tooltips) -> str:
    titles = "source line", "collective", "along axes"
    amounts = ">executions", ">bytes", ">seconds", ">exposed"
    body = markup.table(
        (*titles, *amounts, ""), (_row(row, longest, tips) for row in rows)
    )
    return f'<div class="wide">{body}</div>'


def _row(row: LineCollectives, longest: float, tips: Tooltips) -> str:
    tip = tips.add(row.source or "no source line", *_reasons(row.reasons))
    solid, pale = (100 * s / longest for s in (row.exposed_s, row.hidden_s))
    look = f"k-{row.kind}"
    times = show_seconds(row.seconds), show_seconds(row.exposed_s)
    amounts = str(row.executions), show_bytes(row.num_bytes), *times
    return (
        f"<tr {tip}><td><code>{text(row.source or NONE)}</code></td>"
        f"<td>{markup.chip(look, text(row.kind.replace('_', '-')))}</td>"
        f"<td>{text(', '.join(row.axes))}</td>{markup.numbers(*amounts)}"
        f'<td class="bar"><i class="{look}" style="width:{solid:.2f}%"></i>'
        f'<i class="{look} pale" style="width:{pale:.2f}%"></i></td></tr>'
    )


def _reasons(reasons: Sequence[str]) -> list[str]:
    """At most three reasons, merged if they differ only in a layer's index.

    reasons: sentences on why a collective exists.
    """
    merged = [line for line, _ in collapse(reasons)]
    rest = [f"and {len(merged) - 3} more reasons"] if len(merged) > 3 else []
    return merged[:3] + rest


# -- tactic by tactic -------------------------------------------------------------------

_NAME = 110
"""Most characters of a tactic's name that are shown."""


def draw_waterfall(plan: PlanRecord, tips: Tooltips) -> str:
    """HTML section: for each tactic, the number of collectives after it, by kind.

    A row has a bar of executions by kind, and the change of each kind as text.
    """
    steps = [s for i, s in enumerate(plan.steps) if i or not s.is_idle]
    most = max((sum(s.counts.values()) for s in steps), default=0)
    if not most:
        lead = "No tactic leads to a collective."
        return markup.section("tactics", "Tactic by tactic", lead, "")
    before: dict[str, int] = {}
    rows: list[str] = []
    for step in steps:
        rows.append(_fall(step, before, most, tips))
        before = dict(step.counts)
    kinds = {kind for step in steps for kind, n in step.counts.items() if n}
    lead = "Executions of collectives per step, after each tactic."
    body = markup.legend_of(kinds) + f'<div class="falls">{"".join(rows)}</div>'
    return markup.section("tactics", "Tactic by tactic", lead, body)


def _fall(step: TacticEffect, before: dict[str, int], most: int, tips: Tooltips) -> str:
    total = sum(step.counts.values())
    parts = "".join(
        _part(kind, (n, before.get(kind, 0)), 100 * n / most, tips)
        for kind, n in step.counts.items()
        if n
    )
    changes = [
        f"{n - before.get(kind, 0):+d} {KINDS.get(kind, kind)}"
        for kind, n in step.counts.items()
        if n != before.get(kind, 0)
    ]
    notes = [", ".join(changes) or "no change"]
    notes += [f"partitions {len(step.cut)} inputs"] if step.cut else []
    notes += [f"{len(step.refused)} refused"] if step.refused else []
    notes += [f"{len(step.conflicts)} conflicts"] if step.conflicts else []
    name = text(shorten(step.tactic, _NAME))
    return (
        f'<div class="fall" {tips.add(step.tactic, *step.cut[:6])}><code>{name}</code>'
        f'<div class="bars"><span>{parts}</span><b>{total}</b></div>'
        f"<small>{text('; '.join(notes))}</small></div>"
    )


def _part(kind: str, counts: tuple[int, int], width: float, tips: Tooltips) -> str:
    count, before = counts
    change = count - before
    shown = f"{change:+d} by this tactic" if change else "as before"
    tip = tips.add(f"{count} {TIMES} {KINDS.get(kind, kind)}", shown)
    return f'<i class="k-{kind}" style="width:{width:.3f}%" {tip}>{count}</i>'
