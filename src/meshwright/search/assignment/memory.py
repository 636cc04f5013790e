"""Memory over time, as the nodes of a kernel take it.

Each node takes at every time at least what its most frugal choice takes; that is the
base. What is left of the limit is the slack, and what a choice takes beyond, its excess.
Only times at which all nodes' largest excesses together surpass the slack can bind;
they are the rows. The excess of a node is piecewise constant over rows: its segments.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.search.assignment.compiled import Bools, Floats, Ints, compiled
from meshwright.search.assignment.kernel import Kernel, choice_owners, starts_of
from meshwright.search.assignment.problem import Assignment


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """Excess of each choice over rows, and the slack that all excesses share.

    slack: at each row, [R]; negative if nothing fits
    seg_starts: where the segments of a node start, [N + 1]
    seg_rows: the row at which a segment starts, [S]; before the first nothing is taken
    block_starts: where the excesses of a segment start, one for each choice, [S + 1]
    excess: [sum of widths over segments]
    """

    slack: Floats
    seg_starts: Ints
    seg_rows: Ints
    block_starts: Ints
    excess: Floats

    @property
    def num_rows(self) -> int:
        return len(self.slack)

    def left(self, choices: Ints) -> Floats:
        """The slack that choices leave at each row; negative where they do not fit."""
        return slack_left(
            self.slack, self.seg_starts, self.seg_rows, self.block_starts, self.excess,
            choices,
        )  # fmt: skip

    def used(self, starts: Ints, weights: Floats) -> Floats:
        """The excess at each row when each choice is taken to some part."""
        change = np.zeros(self.num_rows)
        add_used(
            self.seg_starts, self.seg_rows, self.block_starts, self.excess, starts,
            weights, change,
        )  # fmt: skip
        return np.cumsum(change)

    def prices(self, starts: Ints, row_prices: Floats) -> Floats:
        """What each choice pays for its excess, given a price at each row."""
        out = np.zeros(int(starts[-1]))
        add_prices(
            self.seg_starts, self.seg_rows, self.block_starts, self.excess, starts,
            np.concatenate([np.zeros(1), np.cumsum(row_prices)]), out,
        )  # fmt: skip
        return out

    def columns(self, rows: Ints, starts: Ints) -> Floats:
        """Excess of every choice at some rows, dense, [choices, rows]."""
        out = np.zeros((int(starts[-1]), len(rows)))
        fill_columns(
            rows, starts, self.seg_starts, self.seg_rows, self.block_starts,
            self.excess, out,
        )  # fmt: skip
        return out


def memory_of(problem: Assignment, kernel: Kernel) -> Memory:
    """The memory of a kernel; no rows at all if the limit cannot bind."""
    live = np.flatnonzero(problem.lives[:, 0] < problem.lives[:, 1])
    if problem.limit is None or not len(live):
        return _no_memory(kernel.num_nodes)
    times, at = np.unique(problem.lives[live].T, return_inverse=True)
    keys = kernel.owner[live] * len(times) + at.reshape(2, -1)
    found, segment = np.unique(keys, return_inverse=True)
    owners, seg_rows = found // len(times), found % len(times)
    seg_starts = np.searchsorted(owners, np.arange(kernel.num_nodes + 1))
    block_starts = starts_of(kernel.widths[owners])
    excess = np.zeros(block_starts[-1])
    add_usages(
        live, segment.reshape(2, -1), problem.starts, problem.usages,
        kernel.pick_starts, kernel.picks, block_starts, excess,
    )  # fmt: skip
    base = np.zeros(len(times))
    most = np.zeros(len(times))
    split_base(seg_starts, seg_rows, block_starts, excess, base, most)
    slack = problem.limit - np.cumsum(base)
    binds = np.cumsum(most) > slack
    return _compressed(Memory(slack, seg_starts, seg_rows, block_starts, excess), binds)


def shortfall(memory: Memory) -> float:
    """How far the limit is below what every solution takes, as far as is known."""
    return float(max(0.0, -memory.slack.min(initial=0.0)))


def fitting(kernel: Kernel, memory: Memory) -> Bools:
    """A mask of the choices that fit when all others are most frugal."""
    kept = kernel.costs < np.inf
    drop_unfit(
        kernel.starts, memory.slack, memory.seg_starts, memory.seg_rows,
        memory.block_starts, memory.excess, kept,
    )  # fmt: skip
    return kept


def _no_memory(num_nodes: int) -> Memory:
    none = np.zeros(0, np.int64)
    seg_starts = np.zeros(num_nodes + 1, np.int64)
    return Memory(np.zeros(0), seg_starts, none, np.zeros(1, np.int64), np.zeros(0))


def _compressed(memory: Memory, binds: Bools) -> Memory:
    """Only rows that can bind, and segments that differ from the one before."""
    row_after = starts_of(binds.astype(np.int64))  # of binding rows before each row
    kept = np.zeros(len(memory.seg_rows), np.bool_)
    mark_segments(
        memory.seg_starts, memory.seg_rows, memory.block_starts, memory.excess,
        row_after, kept,
    )  # fmt: skip
    widths = np.diff(memory.block_starts)
    blocks = np.repeat(kept, widths)
    return Memory(
        memory.slack[binds],
        starts_of(kept.astype(np.int64))[memory.seg_starts],
        row_after[memory.seg_rows[kept]],
        starts_of(widths[kept]),
        memory.excess[blocks],
    )


@compiled
def add_usages(
    live: Ints,
    segment: Ints,
    starts: Ints,
    usages: Floats,
    pick_starts: Ints,
    picks: Ints,
    block_starts: Ints,
    excess: Floats,
) -> None:
    """Add each live node's usage where its life starts, subtract it where it ends."""
    for n in range(len(live)):
        v = live[n]
        first = block_starts[segment[0, n]]
        last = block_starts[segment[1, n]]
        for k in range(pick_starts[v + 1] - pick_starts[v]):
            usage = usages[starts[v] + picks[pick_starts[v] + k]]
            excess[first + k] += usage
            excess[last + k] -= usage


@compiled
def split_base(
    seg_starts: Ints,
    seg_rows: Ints,
    block_starts: Ints,
    excess: Floats,
    base: Floats,
    most: Floats,
) -> None:
    """Sum changes to usages; move the least of each segment, as a change, to `base`."""
    for i in range(len(seg_starts) - 1):
        least_before = 0.0
        most_before = 0.0
        for s in range(seg_starts[i], seg_starts[i + 1]):
            block = excess[block_starts[s] : block_starts[s + 1]]
            if s > seg_starts[i]:
                block += excess[block_starts[s - 1] : block_starts[s]] + least_before
            least = block.min()
            block -= least
            base[seg_rows[s]] += least - least_before
            most[seg_rows[s]] += block.max() - most_before
            least_before = least
            most_before = block.max()


@compiled
def mark_segments(
    seg_starts: Ints,
    seg_rows: Ints,
    block_starts: Ints,
    excess: Floats,
    row_after: Ints,
    kept: Bools,
) -> None:
    """Mark segments that hold a binding row and differ from the last one marked."""
    num_rows = len(row_after) - 1
    for i in range(len(seg_starts) - 1):
        last = -1
        for s in range(seg_starts[i], seg_starts[i + 1]):
            end = seg_rows[s + 1] if s + 1 < seg_starts[i + 1] else num_rows
            if row_after[end] == row_after[seg_rows[s]]:
                continue
            block = excess[block_starts[s] : block_starts[s + 1]]
            if last < 0:
                kept[s] = block.max() > 0
            else:
                before = excess[block_starts[last] : block_starts[last + 1]]
                kept[s] = np.any(block != before)
            if kept[s]:
                last = s


@compiled
def drop_unfit(
    starts: Ints,
    slack: Floats,
    seg_starts: Ints,
    seg_rows: Ints,
    block_starts: Ints,
    excess: Floats,
    kept: Bools,
) -> None:
    """Drop from `kept` the choices whose excess is beyond the slack somewhere."""
    for i in range(len(starts) - 1):
        for s in range(seg_starts[i], seg_starts[i + 1]):
            end = seg_rows[s + 1] if s + 1 < seg_starts[i + 1] else len(slack)
            least = slack[seg_rows[s] : end].min()
            for k in range(starts[i + 1] - starts[i]):
                if excess[block_starts[s] + k] > max(least, 0.0):
                    kept[starts[i] + k] = False


@compiled
def slack_left(
    slack: Floats,
    seg_starts: Ints,
    seg_rows: Ints,
    block_starts: Ints,
    excess: Floats,
    choices: Ints,
) -> Floats:
    """Slack less the excess of all choices, at each row."""
    change = np.zeros(len(slack))
    for i in range(len(choices)):
        before = 0.0
        for s in range(seg_starts[i], seg_starts[i + 1]):
            now = excess[block_starts[s] + choices[i]]
            change[seg_rows[s]] += now - before
            before = now
    return slack - np.cumsum(change)


@compiled
def fill_columns(
    rows: Ints,
    starts: Ints,
    seg_starts: Ints,
    seg_rows: Ints,
    block_starts: Ints,
    excess: Floats,
    out: Floats,
) -> None:
    """Write the excess of each choice at each of the rows, in ascending order."""
    for i in range(len(starts) - 1):
        s = seg_starts[i] - 1
        for r in range(len(rows)):
            while s + 1 < seg_starts[i + 1] and seg_rows[s + 1] <= rows[r]:
                s += 1
            if s >= seg_starts[i]:
                for k in range(starts[i + 1] - starts[i]):
                    out[starts[i] + k, r] = excess[block_starts[s] + k]


@compiled
def add_used(
    seg_starts: Ints,
    seg_rows: Ints,
    block_starts: Ints,
    excess: Floats,
    starts: Ints,
    weights: Floats,
    change: Floats,
) -> None:
    """Add the changes, from row to row, of the weighted excess."""
    for i in range(len(starts) - 1):
        before = 0.0
        for s in range(seg_starts[i], seg_starts[i + 1]):
            now = 0.0
            for k in range(starts[i + 1] - starts[i]):
                now += weights[starts[i] + k] * excess[block_starts[s] + k]
            change[seg_rows[s]] += now - before
            before = now


@compiled
def add_prices(
    seg_starts: Ints,
    seg_rows: Ints,
    block_starts: Ints,
    excess: Floats,
    starts: Ints,
    summed: Floats,
    out: Floats,
) -> None:
    """Add the price of each choice; `summed[r]` is that of all rows before `r`."""
    for i in range(len(starts) - 1):
        for s in range(seg_starts[i], seg_starts[i + 1]):
            end = seg_rows[s + 1] if s + 1 < seg_starts[i + 1] else len(summed) - 1
            price = summed[end] - summed[seg_rows[s]]
            if price > 0:
                for k in range(starts[i + 1] - starts[i]):
                    out[starts[i] + k] += price * excess[block_starts[s] + k]
