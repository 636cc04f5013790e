"""Collectives after each tactic, and the changes that the tactic made."""

from __future__ import annotations

from meshwright.app.explain.names import shorten
from meshwright.app.record.plan_record import PlanRecord, TacticEffect
from meshwright.app.report.markup import KINDS, TIMES, Tooltips, legend, section, text

_NAME = 110
"""Letters of a tactic that are shown."""


def draw_waterfall(plan: PlanRecord, tips: Tooltips) -> str:
    """A row for each tactic: a bar of executions by kind, and the change in each."""
    steps = [s for i, s in enumerate(plan.steps) if i or not s.is_idle]
    most = max((sum(s.counts.values()) for s in steps), default=0)
    if not most:
        lead = "No tactic leads to a collective."
        return section("tactics", "Tactic by tactic", lead, "")
    before: dict[str, int] = {}
    rows: list[str] = []
    for step in steps:
        rows.append(_row(step, before, most, tips))
        before = dict(step.counts)
    kinds = {kind for step in steps for kind, n in step.counts.items() if n}
    lead = "Executions of collectives per step, after each tactic."
    body = legend(kinds) + f'<div class="falls">{"".join(rows)}</div>'
    return section("tactics", "Tactic by tactic", lead, body)


def _row(step: TacticEffect, before: dict[str, int], most: int, tips: Tooltips) -> str:
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
