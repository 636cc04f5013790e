"""A plan as text: a page that sums it up, and one that explains it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from meshwright.app.explain.trace import shorten
from meshwright.app.output.collapse import collapse, index_free, merge

if TYPE_CHECKING:
    from meshwright.app.explain.explain import Collective, Step
    from meshwright.app.plan import Plan

_LARGEST = 10
_NAME, _COUNT, _LINE = 20, 12, 78
"""Columns of a tactic's name, of a count, and of a whole line."""


def show_plan(plan: Plan) -> str:
    """A page: mesh, counts tactic by tactic, shardings of the inputs, largest moves."""
    lines = [f"mesh {plan.mesh}, gather {plan.gather.value}", ""]
    lines += _counts(plan)
    lines += ["", "inputs"]
    cut = [str(leaf) for leaf in plan.inputs if any(leaf.spec)]
    lines += [f"  {line}{_times(n)}" for line, n in collapse(cut)]
    whole = sum(not any(leaf.spec) for leaf in plan.inputs)
    if whole:
        more = " more" if cut else ""
        lines.append(f"  {whole}{more}, whole on every device")
    groups = _groups(plan.collectives)
    if groups:
        shown = f", {_LARGEST} of {len(groups)}" if len(groups) > _LARGEST else ""
        lines += ["", f"largest collectives{shown} (bytes on a device, times per step)"]
        lines += [_row(group) for group in groups[:_LARGEST]]
    lines += _nothing_cut(plan) + _troubles(plan, expand=False)
    return "\n".join(lines)


def _nothing_cut(plan: Plan) -> list[str]:
    """A line that says so, if tactics were given and left everything as it was."""
    is_cut = any(any(leaf.spec) for leaf in (*plan.inputs, *plan.outputs))
    if is_cut or plan.collectives or len(plan.steps) < 2:
        return []
    return ["", "nothing was cut: every device does the whole step"]


def show_explanation(plan: Plan, expand: bool = False) -> str:
    """Each collective with its reason and chain of decisions, and what stayed whole.

    Those that differ only in the index of a layer are told once, with the chain of the
    first; `expand` tells every one.
    """
    lines = [f"mesh {plan.mesh}, gather {plan.gather.value}"]
    known = _taken(plan)
    groups = [[c] for c in plan.collectives] if expand else _groups(plan.collectives)
    for group in groups:
        first = group[0]
        lines += ["", _head(group, known), f"  {merge([c.reason for c in group])}"]
        lines += [f"    {hop}" for hop in first.chain]
    if not groups:
        lines += ["", "no collectives"]
    lines += _at_the_peak(plan)
    lines += _troubles(plan, expand)
    return "\n".join(lines)


def _at_the_peak(plan: Plan) -> list[str]:
    """The largest values where memory peaks, if the plan is on a machine."""
    found = plan.figures
    if found is None:
        return []
    lines = [
        "",
        f"on {found.machine} a device holds {found.peak_memory_bytes:,} bytes of "
        f"{found.usable_bytes:,.0f} where most is alive ({found.peak_source}); "
        f"the largest",
    ]
    shown = [f"{v.bytes:>16,}  {v.name} {v.value}  {v.source}" for v in found.largest]
    return lines + [f"{line}{_times(n)}" for line, n in collapse(shown)]


def _taken(plan: Plan) -> dict[int, tuple[float, int]]:
    """Seconds of each collective in a step, by its identity, and runs as compiled."""
    found = plan.figures
    if found is None:
        return {}
    runs = found.collective_runs or [c.executions for c in plan.collectives]
    rows = zip(plan.collectives, found.collective_s, runs, strict=True)
    return {id(c): (c.executions * seconds, taken) for c, seconds, taken in rows}


def _counts(plan: Plan) -> list[str]:
    """The table of collectives after each tactic."""
    names = [
        kind.replace("_", "-").replace("reduce-scatter", "red-scatter")
        for kind in plan.counts
    ]
    rows = [f"{'after':{_NAME}}" + "".join(f"{name:>{_COUNT}}" for name in names)]
    for step in plan.steps:
        if step.is_idle and step is plan.steps[0]:
            continue  # the code itself asks for nothing
        counts = "".join(f"{n:>{_COUNT}}" for n in step.counts.values())
        if len(step.tactic) < _NAME:
            rows.append(f"{step.tactic:{_NAME}}{counts}")
        else:
            rows += [shorten(step.tactic, _LINE), " " * _NAME + counts]
    return rows


def _groups(collectives: Iterable[Collective]) -> list[list[Collective]]:
    """Collectives alike up to the index of a layer; those that move most first."""
    groups: dict[tuple[object, ...], list[Collective]] = {}
    for c in collectives:
        key = (c.kind, c.axes, c.bytes, c.executions, c.source, index_free(c.reason))
        groups.setdefault(key, []).append(c)
    return sorted(groups.values(), key=lambda g: -_num_bytes(g))


def _num_bytes(group: Sequence[Collective]) -> int:
    return sum(c.bytes * c.executions for c in group)


def _row(group: Sequence[Collective]) -> str:
    c, times = group[0], sum(c.executions for c in group)
    axes = ",".join(c.axes)
    return f"  {c.kind:14} {axes:12} {c.bytes:>14,} x{times:<5} {c.source}"


def _head(group: Sequence[Collective], known: Mapping[int, tuple[float, int]]) -> str:
    c, times = group[0], sum(c.executions for c in group)
    where = f" at {c.source}" if c.source else ""
    axes = ", ".join(c.axes)
    return (
        f"{c.kind} of {c.value} along {axes}, {c.bytes:,} bytes, "
        f"{_runs(group, known, times)}{where}"
    )


def _runs(
    group: Sequence[Collective], known: Mapping[int, tuple[float, int]], times: int
) -> str:
    """How often collectives run, and for how long if that is known."""
    if not known:
        return f"x{times}"
    spent, taken = (
        sum(each) for each in zip(*(known[id(c)] for c in group), strict=True)
    )
    each = f"{1e6 * spent / (taken or 1):.1f} us each"
    if taken >= times:
        return f"{each}, x{times}"
    return f"x{times}, compiled into x{taken}" + (f", {each}" if taken else "")


def _troubles(plan: Plan, expand: bool) -> list[str]:
    """What did not go as asked, tactic by tactic, and the ops without a rule."""
    lines: list[str] = []
    for title, told in _TROUBLES:
        found = [
            f"  {line}{_times(n)}"
            for step in plan.steps
            for line, n in _listed(told(step), expand)
        ]
        lines += ["", title, *found] if found else []
    if plan.whole:
        lines += ["", "stay whole for want of a rule"]
        lines += [f"  {text}" for text in plan.whole]
    return lines


def show_not_done(steps: Sequence[Step]) -> list[str]:
    """What tactics asked for and did not get, as lines with a title; none if all done."""
    found = [line for step in steps for line in _refused(step)]
    return (
        [_TROUBLES[0][0], *(f"  {line}{_times(n)}" for line, n in collapse(found))]
        if found
        else []
    )


def _listed(lines: Iterable[str], expand: bool) -> list[tuple[str, int]]:
    return [(line, 1) for line in lines] if expand else collapse(lines)


def _refused(step: Step) -> list[str]:
    return [f"{shorten(step.tactic)}: {line}" for line in step.refused]


_TROUBLES = (
    ("asked for, and not done", _refused),
    ("conflicts", lambda step: step.conflicts),
    ("dims that did not divide", lambda step: step.indivisible),
)


def _times(count: int) -> str:
    return f"  (x{count})" if count > 1 else ""
