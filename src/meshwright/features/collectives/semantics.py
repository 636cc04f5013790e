"""Semantics of reduction programs: the chunks that each device holds, step by step.

Each of k devices begins with its own addend, divided into k chunks. A chunk is a row
number, which says which k-th of the array it is, and the set of devices whose addends
it sums. A step is refused if its collective would not compute a sum of disjoint
addends, or would mix up chunks (the Hoare triples of P2, MLSys 2022).
"""

import math
from collections.abc import Sequence
from enum import Enum

from meshwright.errors import CollectiveError
from meshwright.features.collectives.instruction import (
    CollectiveKind,
    Factors,
    Form,
    ReductionStep,
)

type Chunk = tuple[int, int]
"""A part of the array: its row number, and the devices it sums over, as bits."""

type Held = tuple[Chunk, ...]
"""The chunks of one device, in the order in which they lie in memory."""

type State = tuple[Held, ...]
"""The chunks of all devices, by number of the device."""


class ReductionGoal(Enum):
    """The collective that a reduction program as a whole computes.

    A reduce-scatter may leave its chunks on the devices in any order, and an all-gather
    may begin so, because a local transposition before or after it restores the order.
    """

    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"

    def start(self, num_devices: int) -> State:
        """The chunks that each device holds before the first step."""
        rows, every = range(num_devices), (1 << num_devices) - 1
        if self is ReductionGoal.ALL_GATHER:
            return tuple(((d, every),) for d in rows)
        return tuple(tuple((row, 1 << d) for row in rows) for d in rows)

    def is_reached(self, state: State) -> bool:
        """Whether the devices hold the chunks that the goal's collective leaves."""
        num_devices = len(state)
        rows, every = list(range(num_devices)), (1 << num_devices) - 1
        if any(mask != every for held in state for _, mask in held):
            return False
        held_rows = [[row for row, _ in held] for held in state]
        if self is ReductionGoal.REDUCE_SCATTER:
            return sorted(held_rows) == [[row] for row in rows]
        if self is ReductionGoal.ALL_GATHER:
            held_rows = [sorted(held) for held in held_rows]
        return all(held == rows for held in held_rows)


def run_step(state: State, step: ReductionStep, factors: Factors) -> State | str:
    """The chunks of all devices after a step, or the reason why the step is refused.

    factors: number of children of each node of the machine's tree, from the root down.
    """
    groups = step.groups(factors)
    if len(groups[0]) < 2:
        return f"{step} has groups of one device"
    if step.form is Form.MASTER:
        named = {device for group in groups for device in group}
        if any(held and d not in named for d, held in enumerate(state)):
            return f"{step} leaves out devices that still hold chunks"
    after = list(state)
    for group in groups:
        held = _run(step.collective, [state[device] for device in group])
        if isinstance(held, str):
            return f"{step}: {held} (devices {_some(group)})"
        for device, chunks in zip(group, held, strict=True):
            after[device] = chunks
    return tuple(after)


def why_wrong(
    program: Sequence[ReductionStep],
    factors: Factors,
    goal: ReductionGoal = ReductionGoal.ALL_REDUCE,
) -> str | None:
    """The number of the first step that breaks a reduction program, and the reason.

    `None` if the program leads from the goal's start to its end.
    """
    state = goal.start(math.prod(factors))
    for number, step in enumerate(program, 1):
        if step.depth > len(factors):
            deep = f"the hierarchy's devices have depth {len(factors)}"
            return f"step {number}: {step}: {deep}"
        after = run_step(state, step, factors)
        if isinstance(after, str):
            return f"step {number}: {after}"
        state = after
    if goal.is_reached(state):
        return None
    end = f"the program ends without {goal.value}'s result"
    return f"step {len(program) + 1}: {end}"


def require_correct(
    program: Sequence[ReductionStep],
    factors: Factors,
    goal: ReductionGoal = ReductionGoal.ALL_REDUCE,
) -> None:
    """Raise `CollectiveError` if a reduction program does not compute its goal."""
    why = why_wrong(program, factors, goal)
    if why is not None:
        raise CollectiveError(f"not {goal.value} over {list(factors)}: {why}")


# -- collectives in one group -----------------------------------------------------------


def _summed(group: Sequence[Held]) -> Held | str:
    """The sum of a group's chunks, row by row, or the reason why there is none."""
    rows = [row for row, _ in group[0]]
    if not rows:
        return "devices hold no chunks"
    if any([row for row, _ in held] != rows for held in group):
        return "devices hold different rows"
    masks = [0] * len(rows)
    for held in group:
        for i, (_, mask) in enumerate(held):
            if masks[i] & mask:
                return "an addend would be added twice"
            masks[i] |= mask
    return tuple(zip(rows, masks, strict=True))


def _run(kind: CollectiveKind, group: Sequence[Held]) -> list[Held] | str:
    """The chunks of a group's devices after a collective, or why it is refused."""
    if kind is CollectiveKind.ALL_GATHER:
        return _all_gather(group)
    if kind is CollectiveKind.BROADCAST:
        return _broadcast(group)
    total = _summed(group)
    if isinstance(total, str):
        return total
    if kind is CollectiveKind.ALL_REDUCE:
        return [total] * len(group)
    if kind is CollectiveKind.REDUCE:
        return [total, *[()] * (len(group) - 1)]
    size, rest = divmod(len(total), len(group))
    if rest:
        return f"{len(total)} rows do not divide by {len(group)} devices"
    return [total[i * size : (i + 1) * size] for i in range(len(group))]


def _all_gather(group: Sequence[Held]) -> list[Held] | str:
    if not group[0] or any(len(held) != len(group[0]) for held in group):
        return "devices hold no chunks, or different numbers of them"
    chunks = tuple(chunk for held in group for chunk in held)
    if len({row for row, _ in chunks}) < len(chunks):
        return "two devices hold the same row"
    return [chunks] * len(group)


def _broadcast(group: Sequence[Held]) -> list[Held] | str:
    root, *others = group
    if not root:
        return "the root holds no chunks"
    have = dict(root)
    for held in others:
        if any(row not in have or mask & ~have[row] for row, mask in held):
            return "a device holds addends that the root lacks"
    if all(held == root for held in others):
        return "all devices hold the root's chunks already"
    return [root] * len(group)


def _some(group: Sequence[int]) -> str:
    """The numbers of the first four devices of a group, as text for a message."""
    shown = ", ".join(map(str, group[:4]))
    return f"{shown}, ..." if len(group) > 4 else shown
