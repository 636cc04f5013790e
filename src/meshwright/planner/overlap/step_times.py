"""Simulated times of a step, by which product loops and gathers ahead are chosen."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from meshwright.machine import Machine
from meshwright.partitioner.lower import Gather, lower
from meshwright.partitioner.propagate import State
from meshwright.predict.compilers.xla.workarounds import XLA_WORKAROUNDS
from meshwright.predict.estimate import simulated_s

type StepTimes = Mapping[Gather, float]
"""Simulated seconds of a step, by the way to gather."""


def step_times(
    state: State, machine: Machine, gathers: Iterable[Gather] = tuple(Gather)
) -> StepTimes:
    """Simulated seconds of a step for some ways to gather: a plan may use any."""
    return {
        gather: simulated_s(lower(state, gather, XLA_WORKAROUNDS), machine)
        for gather in gathers
    }


def _is_none_slower(after: StepTimes, before: StepTimes) -> bool:
    """Whether a step is slower for no way to gather."""
    return all(after[gather] <= before[gather] for gather in before)


def is_faster(after: StepTimes, before: StepTimes) -> bool:
    """Whether a step is slower for no way to gather, and faster for one."""
    return after != before and _is_none_slower(after, before)


def _try_loops(
    state: State,
    groups: Iterable[Sequence[int]],
    axes: tuple[str, ...],
    times_of: Callable[[State], StepTimes],
    accepts: Callable[[StepTimes, StepTimes], bool],
) -> Iterator[tuple[Sequence[int], bool, StepTimes, StepTimes]]:
    """Mark one group of loops after another, and keep the marks that are accepted.

    times_of: simulates a step of a state.
    accepts: whether the times after a mark are good enough, compared with those before.
    Yields each group, whether it stays marked, and the times before and after.
    """
    before: StepTimes | None = None
    for nodes in groups:
        before = times_of(state) if before is None else before
        mark = state.mark()
        mark_loops(state, nodes, axes)
        after = times_of(state)
        is_kept = accepts(after, before)
        if not is_kept:
            state.rollback(mark)
        yield nodes, is_kept, before, after
        before = after if is_kept else before


def mark_loops(state: State, nodes: Iterable[int], axes: tuple[str, ...]) -> None:
    """Mark the collectives of these nodes, so that they become loops."""
    for number in nodes:
        state.overlap(number, axes)


def mark_faster(
    state: State,
    groups: Sequence[Sequence[int]],
    axes: tuple[str, ...],
    machine: Machine,
) -> dict[int, str]:
    """Mark the loops that do not make the simulated step slower.

    The step counts with either way to gather, since a plan may use either. A collective
    that runs beside other work already has less to gain than the rule for one loop says.
    If all loops together make a step slower, each group is decided by itself, in order.
    Returns the reasons against the loops that are not marked, by node.
    """
    times_of = partial(step_times, machine=machine)
    together = [list(chain(*groups))] if groups else []
    for _, is_kept, _, _ in _try_loops(
        state, together, axes, times_of, _is_none_slower
    ):
        if is_kept:
            return {}
    refused: dict[int, str] = {}
    for group, is_kept, before, after in _try_loops(
        state, groups, axes, times_of, _is_none_slower
    ):
        if not is_kept:
            refused |= dict.fromkeys(group, _why_slower(before, after))
    return refused


def mark_saving(
    state: State,
    groups: Iterable[Sequence[int]],
    axes: tuple[str, ...],
    times_of: Callable[[State], StepTimes],
) -> list[int]:
    """Mark each group of loops with which the step is faster; returns their nodes.

    The rule for one loop refuses some of these, since it does not know what else the
    collective or the loop runs beside.
    times_of: simulates a step of a state.
    """
    tried = _try_loops(state, groups, axes, times_of, is_faster)
    return [number for nodes, is_kept, _, _ in tried if is_kept for number in nodes]


def _why_slower(before: StepTimes, after: StepTimes) -> str:
    slower = next(gather for gather in before if after[gather] > before[gather])
    return (
        f"the simulated step (gather={slower.value!r}) takes {1e3 * before[slower]:.6g} "
        f"ms without this loop, and {1e3 * after[slower]:.6g} ms with it"
    )
