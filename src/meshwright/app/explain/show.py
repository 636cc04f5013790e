"""A plan as text: a page that sums it up, and a page that explains each collective."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from meshwright.app.explain.names import shorten
from meshwright.app.output.collapse import collapse, index_free, merge
from meshwright.app.record.plan_record import Collective, PlanRecord, TacticEffect

_LARGEST = 10
_NAME, _COUNT, _LINE = 20, 12, 78
"""Columns of a tactic's name, of a count, and of a whole line."""


def show_plan(plan: PlanRecord) -> str:
    """One page: mesh, collectives after each tactic, input shardings, largest transfers."""
    lines = [f"mesh {plan.mesh}, gather {plan.gather.value}", ""]
    lines += _counts(plan)
    lines += ["", "inputs"]
    cut = [str(leaf) for leaf in plan.inputs if any(leaf.spec)]
    lines += [f"  {line}{_times(n)}" for line, n in collapse(cut)]
    num_whole = sum(not any(leaf.spec) for leaf in plan.inputs)
    if num_whole:
        more = " more" if cut else ""
        lines.append(f"  {num_whole}{more}, whole on every device")
    groups = _groups(_timed(plan))
    if groups:
        shown = f", {_LARGEST} of {len(groups)}" if len(groups) > _LARGEST else ""
        lines += ["", f"largest collectives{shown} (bytes on a device, times per step)"]
        lines += [_row(group) for group in groups[:_LARGEST]]
    lines += _nothing_cut(plan) + _problems(plan, expand=False)
    return "\n".join(lines)


def _nothing_cut(plan: PlanRecord) -> list[str]:
    """A line for a plan whose tactics left everything whole, otherwise no line."""
    is_cut = any(any(leaf.spec) for leaf in (*plan.inputs, *plan.outputs))
    if is_cut or plan.collectives or len(plan.steps) < 2:
        return []
    return ["", "nothing was cut: every device does the whole step"]


def show_explanation(plan: PlanRecord, expand: bool = False) -> str:
    """Each collective with its reason and chain of decisions, and the ops left whole.

    Collectives that differ only in the index of a layer are shown once, with the chain of
    the first; with `expand` each is shown.
    """
    lines = [f"mesh {plan.mesh}, gather {plan.gather.value}"]
    timed = _timed(plan)
    groups = [[each] for each in timed] if expand else _groups(timed)
    for group in groups:
        reasons = [each.collective.reason for each in group]
        lines += ["", _head(group), f"  {merge(reasons)}"]
        lines += [f"    {hop}" for hop in group[0].collective.chain]
    if not groups:
        lines += ["", "no collectives"]
    lines += _at_the_peak(plan)
    lines += _problems(plan, expand)
    return "\n".join(lines)


def _at_the_peak(plan: PlanRecord) -> list[str]:
    """The largest values at peak memory, if the plan is on a machine."""
    figures = plan.figures
    if figures is None:
        return []
    lines = [
        "",
        f"on {figures.machine} memory peaks at {figures.peak_memory_bytes:,} of "
        f"{figures.usable_bytes:,.0f} bytes per device ({figures.peak_source}); "
        f"largest values then",
    ]
    shown = [f"{v.bytes:>16,}  {v.name} {v.value}  {v.source}" for v in figures.largest]
    return lines + [f"{line}{_times(n)}" for line, n in collapse(shown)]


# -- collectives -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimedCollective:
    """A collective with its figures on the plan's machine.

    seconds: of all its executions in a step; `None` without a machine.
    compiled_runs: executions in a step after the machine's compiler has merged some.
    """

    collective: Collective
    seconds: float | None
    compiled_runs: int


def _timed(plan: PlanRecord) -> list[TimedCollective]:
    """The plan's collectives with their seconds, in order."""
    figures = plan.figures
    if figures is None:
        return [TimedCollective(c, None, c.executions) for c in plan.collectives]
    runs = figures.collective_runs or [c.executions for c in plan.collectives]
    return [
        TimedCollective(c, c.executions * seconds, compiled)
        for c, seconds, compiled in zip(
            plan.collectives, figures.collective_s, runs, strict=True
        )
    ]


def _counts(plan: PlanRecord) -> list[str]:
    """The table of collectives after each tactic."""
    names = [
        kind.replace("_", "-").replace("reduce-scatter", "red-scatter")
        for kind in plan.counts
    ]
    rows = [f"{'after':{_NAME}}" + "".join(f"{name:>{_COUNT}}" for name in names)]
    for step in plan.steps:
        if step.is_idle and step is plan.steps[0]:
            continue  # the user's code has no sharding constraints
        counts = "".join(f"{n:>{_COUNT}}" for n in step.counts.values())
        if len(step.tactic) < _NAME:
            rows.append(f"{step.tactic:{_NAME}}{counts}")
        else:
            rows += [shorten(step.tactic, _LINE), " " * _NAME + counts]
    return rows


def _groups(timed: Iterable[TimedCollective]) -> list[list[TimedCollective]]:
    """Collectives alike up to the index of a layer; the most bytes in a step first."""
    groups: dict[tuple[object, ...], list[TimedCollective]] = {}
    for each in timed:
        c = each.collective
        key = (c.kind, c.axes, c.bytes, c.executions, c.source, index_free(c.reason))
        groups.setdefault(key, []).append(each)
    return sorted(groups.values(), key=lambda g: -_num_bytes(g))


def _num_bytes(group: Sequence[TimedCollective]) -> int:
    return sum(each.collective.bytes * each.collective.executions for each in group)


def _num_executions(group: Sequence[TimedCollective]) -> int:
    return sum(each.collective.executions for each in group)


def _row(group: Sequence[TimedCollective]) -> str:
    c, times = group[0].collective, _num_executions(group)
    axes = ",".join(c.axes)
    return f"  {c.kind:14} {axes:12} {c.bytes:>14,} x{times:<5} {c.source}"


def _head(group: Sequence[TimedCollective]) -> str:
    c = group[0].collective
    where = f" at {c.source}" if c.source else ""
    axes = ", ".join(c.axes)
    return (
        f"{c.kind} of {c.value} along {axes}, {c.bytes:,} bytes, {_runs(group)}{where}"
    )


def _runs(group: Sequence[TimedCollective]) -> str:
    """The number of executions, and the time of each if it is known."""
    times = _num_executions(group)
    known_s = [each.seconds for each in group if each.seconds is not None]
    if not known_s:
        return f"x{times}"
    compiled = sum(each.compiled_runs for each in group)
    time = f"{1e6 * sum(known_s) / (compiled or 1):.1f} us each"
    if compiled >= times:
        return f"{time}, x{times}"
    return f"x{times}, compiled into x{compiled}" + (f", {time}" if compiled else "")


# -- problems --------------------------------------------------------------------------


def _problems(plan: PlanRecord, expand: bool) -> list[str]:
    """Refusals, conflicts and stops of the propagation, and the ops without a rule."""
    lines: list[str] = []
    for title, messages_of in _PROBLEMS:
        messages = [
            f"  {line}{_times(n)}"
            for step in plan.steps
            for line, n in _listed(messages_of(step), expand)
        ]
        lines += ["", title, *messages] if messages else []
    if plan.whole:
        lines += ["", "whole on every device, for lack of a sharding rule"]
        lines += [f"  {text}" for text in plan.whole]
    return lines


def show_refusals(steps: Sequence[TacticEffect]) -> list[str]:
    """Requests of tactics that were refused, below a title; no lines if none was."""
    messages = [line for step in steps for line in _refused(step)]
    return (
        [_PROBLEMS[0][0], *(f"  {line}{_times(n)}" for line, n in collapse(messages))]
        if messages
        else []
    )


def _listed(lines: Iterable[str], expand: bool) -> list[tuple[str, int]]:
    return [(line, 1) for line in lines] if expand else collapse(lines)


def _refused(step: TacticEffect) -> list[str]:
    return [f"{shorten(step.tactic)}: {line}" for line in step.refused]


_PROBLEMS = (
    ("requested by a tactic, but not possible", _refused),
    ("conflicts", lambda step: step.conflicts),
    ("dims at which propagation stopped", lambda step: step.indivisible),
)


def _times(count: int) -> str:
    return f"  (x{count})" if count > 1 else ""
