"""Gathers of scanned weights that run one iteration ahead: which are, and why others not.

`program/rewrite/gather_ahead.py` rewrites the loops. With a machine, a gather is marked
only if the simulated step is faster with it: a later gather of a body already runs beside
the products before it, and each value that a loop carries takes memory.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from meshwright.machine import Machine
from meshwright.partitioner.lower import Gather, lower
from meshwright.partitioner.propagate import State
from meshwright.planner.overlap.step_times import StepTimes, is_faster, step_times
from meshwright.predict.compilers.targets import compiler_of
from meshwright.program.rewrite.loop_gathers import loop_gathers


@dataclass(frozen=True, slots=True)
class GathersAhead:
    """The nodes whose gathers in loops may run one iteration ahead.

    nodes: their numbers, in the order of the program.
    why_not: for each other node with a gather in a loop, why its gathers stay.
    """

    nodes: tuple[int, ...] = ()
    why_not: Mapping[int, str] = field(default_factory=dict[int, str])


def gathers_ahead(state: State, axes: tuple[str, ...]) -> GathersAhead:
    """The gathers in loops along some axes, by node, for both ways to gather.

    A node may run ahead if one of its gathers can; the others stay as they are.
    """
    found: dict[int, None] = {}
    why_not: dict[int, str] = {}
    for gather in Gather:
        lowered = lower(state, gather)
        origins = lowered.origins
        for each in loop_gathers(
            lowered.program,
            lambda op, known=origins: (
                op in known and not known[op].is_ahead and op.params["axes"] == axes
            ),
        ):
            number = origins[each.gather].node
            if each.why_not:
                why_not.setdefault(number, each.why_not)
            else:
                found[number] = None
    left = {number: why for number, why in why_not.items() if number not in found}
    return GathersAhead(tuple(found), left)


def mark_ahead(
    state: State, nodes: Sequence[int], axes: tuple[str, ...], machine: Machine | None
) -> dict[int, str]:
    """Mark gathers that run one iteration ahead; the reasons against others, by node.

    Without a machine all are marked. With one, those are marked with which the simulated
    step is faster for one way to gather, and slower for none.
    """
    if machine is None:
        for number in nodes:
            state.gather_ahead(number, axes)
        return {}
    if not nodes:
        return {}
    if "all_gather" not in compiler_of(machine).async_collectives:
        why = f"gathers on {machine.name} do not run beside products"
        return dict.fromkeys(nodes, why)
    before = step_times(state, machine)

    def times_with(nodes: Sequence[int]) -> StepTimes:
        mark = state.mark()
        for number in nodes:
            state.gather_ahead(number, axes)
        times = step_times(state, machine)
        state.rollback(mark)
        return times

    chosen = _fastest(nodes, before, times_with)
    for number in chosen:
        state.gather_ahead(number, axes)
    best = times_with(()) if chosen else before
    return {
        number: _why_slower(best, times_with((number,)))
        for number in nodes
        if number not in chosen
    }


def _fastest(
    nodes: Sequence[int],
    before: StepTimes,
    times_with: Callable[[Sequence[int]], StepTimes],
) -> list[int]:
    """The nodes with which a step is fastest, of those that are tried.

    One node after another is added to none; then, as gathers that wait for the same links
    may gain only together, one after another is left out of all.
    """
    added: list[int] = []
    least = before
    for number in nodes:
        after = times_with([*added, number])
        if is_faster(after, least):
            added, least = [*added, number], after
    left, after = list(nodes), times_with(nodes)
    if not is_faster(after, before):
        return added
    for number in nodes:
        fewer = [each for each in left if each != number]
        if fewer and is_faster(seconds := times_with(fewer), after):
            left, after = fewer, seconds
    return left if is_faster(after, least) else added


def _why_slower(before: StepTimes, after: StepTimes) -> str:
    shown = max(before, key=lambda gather: after[gather] - before[gather])
    return (
        f"the simulated step (gather={shown.value!r}) takes {1e3 * before[shown]:.6g} ms "
        f"with the gather in its own iteration, and {1e3 * after[shown]:.6g} ms with it "
        "one ahead"
    )
