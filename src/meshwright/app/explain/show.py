"""A plan as text: a page that sums it up, and a page that explains each collective."""

from collections.abc import Sequence

from meshwright.app.explain.fixed_shardings import show_fixed
from meshwright.app.explain.fold_leaves import fold_leaves
from meshwright.app.explain.names import shorten
from meshwright.app.explain.overview import show_overview
from meshwright.app.explain.sub_axes import explain_sub_axes
from meshwright.app.output.collapse import (
    collapsed,
    counted,
    group_by,
    index_free,
    merge,
)
from meshwright.app.output.numbers import show_seconds
from meshwright.app.output.table import columns
from meshwright.app.record.parts import Collective, TacticEffect
from meshwright.app.record.plan_record import PlanRecord
from meshwright.machine.memory_size import show_bytes

_LARGEST = 10
_NAME, _COUNT, _LINE = 20, 12, 78
"""Widths in characters: of a tactic's name, of a count, and of a whole line."""


def show_plan(plan: PlanRecord, full: bool = False) -> str:
    """A plan as one page of text.

    It has figures, uncut work, input shardings, collectives and refused requests of
    tactics.
    full: one line for every leaf, collective and message, even if layers are equal.
    """
    lines = [*show_overview(plan, full), "", *_counts(plan), "", *_inputs(plan, full)]
    groups = _groups(plan)
    if groups:
        most = len(groups) if full else _LARGEST
        shown = f", {most} of {len(groups)}" if len(groups) > most else ""
        lines += ["", f"largest collectives{shown} (size on a device, times per step)"]
        lines += [_row(group) for group in groups[:most]]
    is_cut = any(any(leaf.spec) for leaf in (*plan.inputs, *plan.outputs))
    if not is_cut and not plan.collectives and len(plan.steps) > 1:
        lines += ["", "nothing was cut: every device does the whole step"]
    lines += show_fixed(plan.fixed)
    lines += _problems(plan, full)
    if plan.search is not None and plan.search.notes:
        lines += ["", "the search", *(f"  {note}" for note in plan.search.notes)]
    return "\n".join(lines)


def _inputs(plan: PlanRecord, full: bool) -> list[str]:
    """Lines on the shardings of the inputs, and on the inputs that are replicated."""
    cut = [leaf for leaf in plan.inputs if any(leaf.spec)]
    whole = [leaf for leaf in plan.inputs if not any(leaf.spec)]
    lines = ["shardings of the inputs"]
    if parts := explain_sub_axes(plan):
        lines.append(f"  parts of axes: {parts}")
    if full:
        return lines + [f"  {leaf}" for leaf in plan.inputs]
    lines += [f"  {counted(line, n)}" for line, n in fold_leaves(cut)]
    if whole:
        more = "more" if cut else "input" + "s" * (len(whole) > 1)
        size = show_bytes(sum(leaf.num_bytes for leaf in whole))
        lines.append(f"  {len(whole)} {more}, whole on every device, {size} together")
    return lines


def show_explanation(plan: PlanRecord, expand: bool = False) -> str:
    """Text on why each collective exists, and on the ops that are replicated.

    For each collective it has the reason and the chain of decisions that led to it.
    Collectives that differ only in the index of a layer are shown once, with the chain of
    the first.
    expand: show each collective.
    """
    lines = [f"mesh {plan.mesh}, gather {plan.gather.value}"]
    alone = [[pair] for pair in enumerate(plan.collectives)]
    groups = alone if expand else _groups(plan)
    for group in groups:
        reasons = [c.reason for _, c in group]
        lines += ["", _head(plan, group), f"  {merge(reasons)}"]
        lines += [f"    {hop}" for hop in group[0][1].chain]
    if not groups:
        lines += ["", "no collectives"]
    lines += _at_the_peak(plan)
    lines += _problems(plan, expand)
    return "\n".join(lines)


def _at_the_peak(plan: PlanRecord) -> list[str]:
    """Lines on the largest values that are live at peak memory; empty without a machine."""
    figures = plan.figures
    if figures is None:
        return []
    lines = [
        "",
        f"on {figures.machine} memory peaks at {show_bytes(figures.peak_memory_bytes)} of "
        f"{show_bytes(figures.usable_bytes)} per device ({figures.peak_source}); "
        f"largest values then",
    ]
    shown = [
        f"{show_bytes(v.bytes):>12}  {v.name} {v.value}  {v.source}"
        for v in figures.largest
    ]
    return lines + collapsed(shown)


# -- collectives -----------------------------------------------------------------------


Group = list[tuple[int, Collective]]
"""Collectives that are shown as one; each has its position in the plan's list."""


def _counts(plan: PlanRecord) -> list[str]:
    """Lines with the number of collectives after each tactic, or "no collectives"."""
    if not any(any(step.counts.values()) for step in plan.steps):
        return ["no collectives"]
    names = [
        kind.replace("_", "-").replace("reduce-scatter", "red-scatter")
        for kind in plan.counts
    ]
    rows = ["collectives per step"]
    widths = (str(_NAME), *(f">{_COUNT}" for _ in names))
    rows += columns([("after", *names)], widths)
    for step in plan.steps:
        if step.is_idle and step is plan.steps[0]:
            continue  # the user's code has no sharding constraints
        name = step.tactic
        if len(name) >= _NAME:
            rows.append(shorten(name, _LINE))
            name = ""
        rows += columns([(name, *step.counts.values())], widths)
    return rows


def _groups(plan: PlanRecord) -> list[Group]:
    """Groups of collectives that differ only in the index of a layer, most bytes first."""

    def key(pair: tuple[int, Collective]) -> tuple[object, ...]:
        c = pair[1]
        return c.kind, c.axes, c.bytes, c.executions, c.source, index_free(c.reason)

    groups = group_by(enumerate(plan.collectives), key).values()
    return sorted(groups, key=lambda g: -g[0][1].bytes * _num_executions(g))


def _num_executions(group: Group) -> int:
    return sum(c.executions for _, c in group)


def _row(group: Group) -> str:
    c, times = group[0][1], _num_executions(group)
    axes = ",".join(c.axes)
    return f"  {c.kind:14} {axes:12} {show_bytes(c.bytes):>10} x{times:<5} {c.source}"


def _head(plan: PlanRecord, group: Group) -> str:
    c = group[0][1]
    where = f" at {c.source}" if c.source else ""
    axes, runs = ", ".join(c.axes), _runs(plan, group)
    return f"{c.kind} of {c.value} along {axes}, {show_bytes(c.bytes)}, {runs}{where}"


def _runs(plan: PlanRecord, group: Group) -> str:
    """Text with the number of executions of a group, and seconds each if known.

    The machine's compiler may have merged some of the collectives; then the text has both
    counts.
    """
    times, figures = _num_executions(group), plan.figures
    if figures is None:
        return f"x{times}"
    runs = figures.collective_runs
    compiled = sum(runs[i] for i, _ in group) if runs else times
    total_s = sum(c.executions * figures.collective_s[i] for i, c in group)
    time = f"{show_seconds(total_s / (compiled or 1))} each"
    if compiled >= times:
        return f"{time}, x{times}"
    return f"x{times}, compiled into x{compiled}" + (f", {time}" if compiled else "")


# -- problems --------------------------------------------------------------------------


def _problems(plan: PlanRecord, expand: bool) -> list[str]:
    """Lines on requests that were refused and on cuts that did not propagate.

    They list refused requests of tactics, conflicts, dims where propagation stopped, and
    ops without a sharding rule.
    """
    lines: list[str] = []
    for title, messages_of in _PROBLEMS:
        messages = [line for step in plan.steps for line in messages_of(step)]
        lines += ["", *_section(title, messages, expand)] if messages else []
    if plan.whole:
        lines += ["", "whole on every device, for lack of a sharding rule"]
        lines += [f"  {text}" for text in plan.whole]
    return lines


def show_refusals(steps: Sequence[TacticEffect]) -> list[str]:
    """Lines with the refused requests of tactics, below a title.

    The list is empty if no request was refused.
    """
    messages = [line for step in steps for line in _refused(step)]
    return _section(_PROBLEMS[0][0], messages, expand=False) if messages else []


def _section(title: str, messages: Sequence[str], expand: bool) -> list[str]:
    listed = messages if expand else collapsed(messages)
    return [title, *(f"  {line}" for line in listed)]


def _refused(step: TacticEffect) -> list[str]:
    return [f"{shorten(step.tactic)}: {line}" for line in step.refused]


_PROBLEMS = (
    ("requested by a tactic, but not possible", _refused),
    ("conflicts", lambda step: step.conflicts),
    ("dims at which propagation stopped", lambda step: step.indivisible),
)
