"""Collectives of a step by source line, with their exposed and their hidden time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from meshwright.app.output.collapse import index_free, merge
from meshwright.app.output.numbers import show_bytes, show_seconds
from meshwright.app.record.plan_record import (
    Collective,
    PlanRecord,
    estimate_of,
    program_of,
)
from meshwright.app.report.markup import NONE, Tooltips, section, text
from meshwright.partitioner.lower import executions
from meshwright.predict.compilers.hlo.fusion import FusionKind
from meshwright.predict.simulate.timeline import COMPUTE, Timeline
from meshwright.program.ir import Op

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class LineCollectives:
    """Collectives of one kind along the same mesh axes, for one source line.

    executions, num_bytes, seconds: totals of a step.
    hidden_s: the seconds that overlap with computation.
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
        """The seconds that do not overlap with computation."""
        return max(0.0, self.seconds - self.hidden_s)  # differences of sums may round


def collectives_by_line(plan: PlanRecord) -> list[LineCollectives]:
    """All collectives of a step by source line, the longest exposed time first."""
    estimate, decided = estimate_of(plan), program_of(plan)
    seconds_of = {
        estimate.origins.get(op, op): (seconds, hidden)
        for op, seconds, hidden in _times(estimate.timeline)
    }
    ops = [op for op, _ in executions(decided.lowered.program)]
    groups: dict[tuple[str, str, tuple[str, ...]], list[tuple[Op, Collective]]] = {}
    for op, c in zip(ops, plan.collectives, strict=True):
        groups.setdefault((c.source, c.kind, c.axes), []).append((op, c))
    lines = [
        LineCollectives(
            *key,
            tuple(dict.fromkeys(c.reason for _, c in pairs)),
            sum(c.executions for _, c in pairs),
            sum(c.executions * c.bytes for _, c in pairs),
            sum(c.executions * seconds_of.get(op, (0.0, 0.0))[0] for op, c in pairs),
            sum(c.executions * seconds_of.get(op, (0.0, 0.0))[1] for op, c in pairs),
        )
        for key, pairs in groups.items()
    ]
    return sorted(lines, key=lambda m: (-m.exposed_s, -m.seconds, -m.num_bytes))


def _times(timeline: Timeline) -> Iterator[tuple[Op, float, float]]:
    """Each collective, its seconds, and the part that overlaps with computation."""
    busy = [(s.start_s, s.end_s) for s in timeline.spans if s.stream == COMPUTE]
    starts = [start for start, _ in busy]
    done = list(accumulate((end - start for start, end in busy), initial=0.0))

    def computed_s(until: float) -> float:
        """Seconds of computation before `until`; spans of one stream do not overlap."""
        index = bisect_right(starts, until)
        over = max(0.0, busy[index - 1][1] - until) if index else 0.0
        return done[index] - over

    for span in timeline.spans:
        if span.inner is not None:
            yield from _times(span.inner)
        elif span.fusion.kind is FusionKind.COLLECTIVE:
            hidden = computed_s(span.end_s) - computed_s(span.start_s)
            yield span.fusion.root, span.end_s - span.start_s, hidden


def draw_collectives(plan: PlanRecord, tips: Tooltips) -> str:
    """A table with a bar for each line: solid for exposed time, pale for hidden time."""
    rows = collectives_by_line(plan)
    if not rows:
        lead = "The step has no collectives."
        return section("collectives", "Collectives by source line", lead, "")
    lead = (
        f"{sum(row.executions for row in rows)} executions per step, "
        f"{show_seconds(sum(row.seconds for row in rows))} on the links. Solid bars: "
        "exposed time, in which nothing is computed. Pale bars: time hidden behind "
        "computation."
    )
    longest = max(row.seconds for row in rows) or 1.0
    body = _table(rows[:_SHOWN], longest, tips)
    if rows[_SHOWN:]:
        rest = _table(rows[_SHOWN:], longest, tips)
        more = f"{len(rows) - _SHOWN} more"
        body += f"<details><summary>{more}</summary>{rest}</details>"
    return section("collectives", "Collectives by source line", lead, body)


def _table(rows: Sequence[LineCollectives], longest: float, tips: Tooltips) -> str:
    head = (
        "<th>source line</th><th>collective</th><th>along axes</th>"
        '<th class="n">executions</th><th class="n">bytes</th><th class="n">seconds</th>'
        '<th class="n">exposed</th><th></th>'
    )
    body = "".join(_row(row, longest, tips) for row in rows)
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _row(row: LineCollectives, longest: float, tips: Tooltips) -> str:
    tip = tips.add(row.source or "no source line", *_reasons(row.reasons))
    solid, pale = (100 * s / longest for s in (row.exposed_s, row.hidden_s))
    look = f"k-{row.kind}"
    return (
        f"<tr {tip}><td><code>{text(row.source or NONE)}</code></td>"
        f'<td><span class="chip"><i class="{look}"></i>'
        f"{text(row.kind.replace('_', '-'))}</span></td>"
        f"<td>{text(', '.join(row.axes))}</td>"
        f'<td class="n">{row.executions}</td>'
        f'<td class="n">{show_bytes(row.num_bytes)}</td>'
        f'<td class="n">{show_seconds(row.seconds)}</td>'
        f'<td class="n">{show_seconds(row.exposed_s)}</td>'
        f'<td class="bar"><i class="{look}" style="width:{solid:.2f}%"></i>'
        f'<i class="{look} pale" style="width:{pale:.2f}%"></i></td></tr>'
    )


def _reasons(reasons: Sequence[str]) -> list[str]:
    """At most three reasons; reasons alike up to the index of a layer count as one."""
    groups: dict[str, list[str]] = {}
    for reason in reasons:
        groups.setdefault(index_free(reason), []).append(reason)
    merged = [merge(group) for group in groups.values()]
    more = [f"and {len(merged) - 3} more reasons"] if len(merged) > 3 else []
    return merged[:3] + more
