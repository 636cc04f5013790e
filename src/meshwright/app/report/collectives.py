"""What moves between devices, by source line, and how much of it is waited for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from meshwright.app.output.collapse import index_free, merge
from meshwright.app.output.numbers import show_bytes, show_seconds
from meshwright.app.record.plan_record import Collective, PlanRecord, estimate_of
from meshwright.app.report.markup import NONE, Tips, section, text
from meshwright.partitioner.lower import executions
from meshwright.predict.compilers.xla.fusion import FusionKind
from meshwright.predict.simulate.timeline import COMPUTE, Timeline
from meshwright.program.ir import Op

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Moved:
    """Collectives of one kind, along the same axes, for one source line.

    num_bytes: of all executions in a step. hidden_s: with computation beside them.
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
        """Seconds in which nothing is computed."""
        return self.seconds - self.hidden_s


def moved_by_line(plan: PlanRecord) -> list[Moved]:
    """All collectives of a step, those first that it waits for longest."""
    found, decided = estimate_of(plan), plan.decided
    assert decided is not None, "a plan with an estimate knows its program"
    known = {
        found.origins.get(op, op): (seconds, hidden)
        for op, seconds, hidden in _times(found.timeline)
    }
    ops = [op for op, _ in executions(decided.lowered.program)]
    groups: dict[tuple[str, str, tuple[str, ...]], list[tuple[Op, Collective]]] = {}
    for op, told in zip(ops, plan.collectives, strict=True):
        key = told.source, told.kind, told.axes
        groups.setdefault(key, []).append((op, told))
    made = [
        Moved(
            *key,
            tuple(dict.fromkeys(told.reason for _, told in pairs)),
            sum(told.executions for _, told in pairs),
            sum(told.executions * told.bytes for _, told in pairs),
            sum(told.executions * known.get(op, (0.0, 0.0))[0] for op, told in pairs),
            sum(told.executions * known.get(op, (0.0, 0.0))[1] for op, told in pairs),
        )
        for key, pairs in groups.items()
    ]
    return sorted(made, key=lambda m: (-m.exposed_s, -m.seconds, -m.num_bytes))


def _times(timeline: Timeline) -> Iterator[tuple[Op, float, float]]:
    """Each collective, its seconds, and those in which something is computed."""
    busy = [(s.start_s, s.end_s) for s in timeline.spans if s.stream == COMPUTE]
    starts = [start for start, _ in busy]
    done = list(accumulate((end - start for start, end in busy), initial=0.0))

    def computed_s(until: float) -> float:
        """Seconds of computation up to a moment; spans of one stream do not overlap."""
        index = bisect_right(starts, until)
        over = max(0.0, busy[index - 1][1] - until) if index else 0.0
        return done[index] - over

    for span in timeline.spans:
        if span.inner is not None:
            yield from _times(span.inner)
        elif span.fusion.kind is FusionKind.COLLECTIVE:
            hidden = computed_s(span.end_s) - computed_s(span.start_s)
            yield span.fusion.root, span.end_s - span.start_s, hidden


def draw_collectives(plan: PlanRecord, tips: Tips) -> str:
    """A table with a bar for each line: dark what is waited for, pale what is not."""
    rows = moved_by_line(plan)
    if not rows:
        said = "The devices have nothing to tell each other."
        return section("collectives", "Collectives by source line", said, "")
    lead = (
        f"{sum(row.executions for row in rows)} executions a step, "
        f"{show_seconds(sum(row.seconds for row in rows))} on the links. Solid: nothing "
        "is computed meanwhile. Pale: hidden behind computation."
    )
    longest = max(row.seconds for row in rows) or 1.0
    body = _table(rows[:_SHOWN], longest, tips)
    if rows[_SHOWN:]:
        rest = _table(rows[_SHOWN:], longest, tips)
        said = f"{len(rows) - _SHOWN} more"
        body += f"<details><summary>{said}</summary>{rest}</details>"
    return section("collectives", "Collectives by source line", lead, body)


def _table(rows: Sequence[Moved], longest: float, tips: Tips) -> str:
    head = (
        "<th>source line</th><th>collective</th><th>along</th>"
        '<th class="n">times</th><th class="n">bytes</th><th class="n">seconds</th>'
        '<th class="n">exposed</th><th></th>'
    )
    body = "".join(_row(row, longest, tips) for row in rows)
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _row(row: Moved, longest: float, tips: Tips) -> str:
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
    """At most three, those alike up to the index of a layer as one."""
    groups: dict[str, list[str]] = {}
    for reason in reasons:
        groups.setdefault(index_free(reason), []).append(reason)
    merged = [merge(group) for group in groups.values()]
    more = [f"and {len(merged) - 3} more reasons"] if len(merged) > 3 else []
    return merged[:3] + more
