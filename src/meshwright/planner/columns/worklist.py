"""The work list of propagation: groups to visit, in order of arrival."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meshwright.planner.columns.graph_columns import Columns
from meshwright.planner.columns.partial_cache import PartialCache, new_partial_cache
from meshwright.search.arrays import Ints
from meshwright.search.compiled import compiled_in_place

FORWARD, BACKWARD = 0, 1
"""The two queues: groups whose operands, or whose results, have changed."""


class Worklist(NamedTuple):
    """Two queues of groups, each a ring buffer, and the cache that propagation needs.

    queues: [2, G]. ends: position of the first entry, and number of entries, [2, 2].
    waiting: 1 for groups that are in a queue, [2, G]
    """

    queues: Ints
    ends: Ints
    waiting: Ints
    cache: PartialCache


def new_worklist(columns: Columns) -> Worklist:
    """An empty work list."""
    groups = len(columns.groups) - 1
    return Worklist(
        np.zeros((2, groups), np.int64),
        np.zeros((2, 2), np.int64),
        np.zeros((2, groups), np.int64),
        new_partial_cache(columns),
    )


@compiled_in_place
def push(work: Worklist, which: int, group: int) -> None:
    """Append a group to a queue, unless it is in there."""
    if work.waiting[which, group]:
        return
    work.waiting[which, group] = 1
    capacity = work.queues.shape[1]
    first, count = work.ends[which, 0], work.ends[which, 1]
    work.queues[which, (first + count) % capacity] = group
    work.ends[which, 1] = count + 1


@compiled_in_place
def pop(work: Worklist, which: int) -> int:
    """Remove and return the first group of a queue."""
    first = work.ends[which, 0]
    group = work.queues[which, first]
    work.ends[which, 0] = (first + 1) % work.queues.shape[1]
    work.ends[which, 1] -= 1
    work.waiting[which, group] = 0
    return group
