"""Memory constraints of a reduced problem: one row per time that matters.

At each time a node takes at least the memory of its smallest choice; the sum over nodes
is the base. The slack of a row is the limit minus the base. The excess of a choice is
its memory beyond that of the node's smallest choice. A time has a row only if the limit
can bind there: if the largest excesses of all nodes together exceed the slack. The
excess of a node is piecewise constant over rows; each piece is a segment.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from meshwright.search.arrays import Bools, Floats, Ints, starts_of
from meshwright.search.assignment.problem.assignment import Assignment
from meshwright.search.assignment.problem.reduced_problem import ReducedProblem
from meshwright.search.compiled import compiled


class Segments(NamedTuple):
    """The excess memory of each choice of each node, piecewise constant over rows.

    N is the number of nodes, S of segments.
    starts: first segment of each node, [N + 1]
    rows, ends: first row of each segment, and the row after its last, [S]; the excess
        is zero before the first segment of a node
    block_starts: offset of each segment in `excess`, [S + 1]
    excess: excess of each choice of the segment's node, segment after segment
    """

    starts: Ints
    rows: Ints
    ends: Ints
    block_starts: Ints
    excess: Floats


@dataclass(frozen=True, slots=True, eq=False)
class MemoryRows:
    """Memory constraints: at each row the choices' excesses sum to at most the slack.

    A negative slack means that no choices fit.
    """

    slack: Floats
    segments: Segments

    @property
    def num_rows(self) -> int:
        return len(self.slack)

    def left(self, choices: Ints) -> Floats:
        """Slack that remains at each memory row with these choices.

        It is negative where the choices exceed the memory limit.
        """
        change = np.zeros(self.num_rows)
        add_excess(self.segments, choices, change)
        return self.slack - np.cumsum(change)

    def used(self, starts: Ints, weights: Floats) -> Floats:
        """Sum of the excesses at each row if choices are taken in part.

        weights: share of each choice that is taken, between 0 and 1.
        """
        change = np.zeros(self.num_rows)
        add_used(self.segments, starts, weights, change)
        return np.cumsum(change)

    def prices(self, starts: Ints, row_prices: Floats) -> Floats:
        """The price of the memory of each choice: its excess times the price of memory.

        The price is summed over the rows in which the choice takes memory.
        row_prices: price of memory at each row (its Lagrange multiplier).
        """
        out = np.zeros(int(starts[-1]))
        summed = np.concatenate([np.zeros(1), np.cumsum(row_prices)])
        add_prices(self.segments, starts, summed, out)
        return out


def memory_of(problem: Assignment, reduced: ReducedProblem) -> MemoryRows:
    """The memory constraints of a reduced problem, one row per time that matters.

    There are no rows if the limit cannot bind.
    """
    live = np.flatnonzero(problem.lives[:, 0] < problem.lives[:, 1])
    if problem.limit is None or not len(live):
        return _no_memory(reduced.num_nodes)
    times, at = np.unique(problem.lives[live].T, return_inverse=True)
    keys = reduced.maps.owner[live] * len(times) + at.reshape(2, -1)
    found, segment = np.unique(keys, return_inverse=True)
    owners = found // len(times)
    block_starts = starts_of(reduced.widths[owners])
    starts = np.searchsorted(owners, np.arange(reduced.num_nodes + 1))
    rows = found % len(times)
    ends = _segment_ends(starts, rows, len(times))
    excess = np.zeros(block_starts[-1])
    segments = Segments(starts, rows, ends, block_starts, excess)
    maps = reduced.maps
    firsts = np.repeat(problem.starts[:-1], np.diff(maps.starts))
    use = problem.usages[firsts + maps.picks]
    add_usages(live, segment.reshape(2, -1), maps.starts, use, segments)
    base, most = np.zeros(len(times)), np.zeros(len(times))
    split_base(segments, reduced.graph.starts, base, most)
    slack = problem.limit - np.cumsum(base)
    return _compressed(MemoryRows(slack, segments), np.cumsum(most) > slack)


def _no_memory(num_nodes: int) -> MemoryRows:
    none, one = np.zeros(0, np.int64), np.zeros(1, np.int64)
    starts = np.zeros(num_nodes + 1, np.int64)
    return MemoryRows(np.zeros(0), Segments(starts, none, none, one, np.zeros(0)))


def _segment_ends(starts: Ints, rows: Ints, num_rows: int) -> Ints:
    """The row after the last row of each segment."""
    ends = np.append(rows[1:], num_rows)[: len(rows)]
    ends[starts[1:][np.diff(starts) > 0] - 1] = num_rows
    return ends


def _compressed(memory: MemoryRows, binds: Bools) -> MemoryRows:
    """Memory rows without the rows that can never bind.

    Segments that then equal the node's segment before them are dropped.
    binds: whether the limit can bind at each row.
    """
    old = memory.segments
    row_after = starts_of(binds.astype(np.int64))  # binding rows before each row
    kept = np.zeros(len(old.rows), np.bool_)
    mark_segments(old, row_after, kept)
    widths = np.diff(old.block_starts)
    starts = starts_of(kept.astype(np.int64))[old.starts]
    rows = row_after[old.rows[kept]]
    ends = _segment_ends(starts, rows, int(row_after[-1]))
    excess = old.excess[np.repeat(kept, widths)]
    segments = Segments(starts, rows, ends, starts_of(widths[kept]), excess)
    return MemoryRows(memory.slack[binds], segments)


@compiled
def add_usages(
    live: Ints, segment: Ints, pick_starts: Ints, use: Floats, segments: Segments
) -> None:
    """Add memory to `segments.excess` as changes over time.

    The memory of a node is added at its start and subtracted at its end.
    live: nodes whose live range is not empty
    segment: for each such node the segment that begins at its start, and the segment
        that begins at its end, [2, nodes]
    use: usage of each original node under each choice of the reduced node that owns it
    """
    for n in range(len(live)):
        start = pick_starts[live[n]]
        first = segments.block_starts[segment[0, n]]
        last = segments.block_starts[segment[1, n]]
        for k in range(pick_starts[live[n] + 1] - start):
            segments.excess[first + k] += use[start + k]
            segments.excess[last + k] -= use[start + k]


@compiled
def split_base(segments: Segments, starts: Ints, base: Floats, most: Floats) -> None:
    """Turn the changes of `add_usages` into excesses, in place.

    An excess is a choice's memory beyond that of the node's smallest choice.
    base, most: filled with the changes from row to row of two sums over nodes: the
        memory of their smallest choices (base), and their largest excesses (most).
    """
    excess = segments.excess
    for i in range(len(starts) - 1):
        least_before = 0.0
        most_before = 0.0
        for s in range(segments.starts[i], segments.starts[i + 1]):
            first = segments.block_starts[s]
            width = segments.block_starts[s + 1] - first
            least, largest = np.inf, -np.inf
            for k in range(first, first + width):
                if s > segments.starts[i]:
                    excess[k] += excess[k - width] + least_before
                least = min(least, excess[k])
                largest = max(largest, excess[k])
            for k in range(first, first + width):
                excess[k] -= least
            base[segments.rows[s]] += least - least_before
            most[segments.rows[s]] += largest - least - most_before
            least_before = least
            most_before = largest - least


@compiled
def mark_segments(segments: Segments, row_after: Ints, kept: Bools) -> None:
    """Set `kept` to true for segments whose excess differs from the last kept one's.

    Segments without a binding row are not kept. row_after: number of binding rows
    before each row.
    """
    blocks, excess = segments.block_starts, segments.excess
    for i in range(len(segments.starts) - 1):
        last = -1
        for s in range(segments.starts[i], segments.starts[i + 1]):
            if row_after[segments.ends[s]] == row_after[segments.rows[s]]:
                continue
            for k in range(blocks[s + 1] - blocks[s]):
                before = 0.0 if last < 0 else excess[blocks[last] + k]
                if excess[blocks[s] + k] != before:
                    kept[s] = True
            if kept[s]:
                last = s


@compiled
def drop_unfit(segments: Segments, starts: Ints, slack: Floats, kept: Bools) -> None:
    """Remove from `kept` choices that alone exceed the slack of some row.

    A choice counts with its excess: its memory beyond that of the node's smallest
    choice.
    """
    for i in range(len(starts) - 1):
        for s in range(segments.starts[i], segments.starts[i + 1]):
            least = np.inf
            for row in range(segments.rows[s], segments.ends[s]):
                least = min(least, slack[row])
            for k in range(starts[i + 1] - starts[i]):
                if segments.excess[segments.block_starts[s] + k] > least:
                    kept[starts[i] + k] = False


@compiled
def add_excess(segments: Segments, choices: Ints, change: Floats) -> None:
    """Add to `change[row]` the growth of the total excess since the row before.

    The total is over all nodes with the given choices.
    """
    for i in range(len(choices)):
        before = 0.0
        for s in range(segments.starts[i], segments.starts[i + 1]):
            now = segments.excess[segments.block_starts[s] + choices[i]]
            change[segments.rows[s]] += now - before
            before = now


@compiled
def add_used(segments: Segments, starts: Ints, weights: Floats, change: Floats) -> None:
    """Add to `change[row]` the growth of a weighted total excess since the row before.

    weights: share of each choice that is taken, between 0 and 1.
    """
    for i in range(len(starts) - 1):
        before = 0.0
        for s in range(segments.starts[i], segments.starts[i + 1]):
            now = 0.0
            for k in range(starts[i + 1] - starts[i]):
                excess = segments.excess[segments.block_starts[s] + k]
                now += weights[starts[i] + k] * excess
            change[segments.rows[s]] += now - before
            before = now


@compiled
def add_prices(segments: Segments, starts: Ints, summed: Floats, out: Floats) -> None:
    """Add to `out`, for each choice, the price of the memory that it takes.

    Counted are the bytes beyond those of the node's smallest choice, in each row (point in
    time) at which the node's value is live. summed: at index r, the sum of the prices of
    memory of all rows before row r.
    """
    for i in range(len(starts) - 1):
        for s in range(segments.starts[i], segments.starts[i + 1]):
            price = summed[segments.ends[s]] - summed[segments.rows[s]]
            if price > 0:
                for k in range(starts[i + 1] - starts[i]):
                    excess = segments.excess[segments.block_starts[s] + k]
                    out[starts[i] + k] += price * excess
