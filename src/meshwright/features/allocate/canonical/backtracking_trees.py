"""Learned backtracking: decision trees that tell which placements lead to no packing.

A frame of the search's stack stands for the placements below it. It is hopeless if no
packing contains them all. The depth-first search learns that only when it has tried all
choices above them, which can take longer than all the rest (a long tail). Gradient-boosted
trees say it earlier, after LEAST_NODES nodes in a frame, so that the search backtracks by
more than one placement. They imitate an oracle: whether the packing that a complete search
found later contains these placements (benchmarks/train/train_backtracking.py).
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from meshwright.features.allocate.canonical.packing_state import (
    PackingState,
    room,
)
from meshwright.features.allocate.problem.sections import BufferColumns
from meshwright.search.arrays import Floats, Ints
from meshwright.search.compiled import compiled_in_place

FEATURES = (
    "share of buffers placed",
    "log2 of nodes in the frame",
    "log2 of failed choices in the frame",
    "share of buffers unplaced in the part",
    "log2 of all nodes",
    "least free share of a section",
    "mean free share of the sections",
    "share of sections that are less than 1 % free",
    "last offset over the capacity",
    "failures of the part's sections over the most of any section",
    "unplaced bytes over bytes above the floors",
    "largest unplaced size over the capacity",
)
"""Inputs of the trees. A part is the range of sections that a frame packs."""

NUM_FEATURES = len(FEATURES)

LEAST_NODES = 64
"""Nodes in a frame before the trees are asked about it.

A million nodes then take 0.99 s with trees and 0.92 s without
(benchmarks/allocation/backtracking.py).
"""

MODEL = Path(__file__).parent / "backtracking_trees.json"


class BacktrackingTrees(NamedTuple):
    """Decision trees as flat arrays; a frame is hopeless if their sum exceeds `limit`.

    root: [trees] the first node of each tree.
    feature: [nodes] the feature that a node tests, -1 for a leaf.
    threshold, left, right: [nodes] a node continues at `left` if its feature is at most
        `threshold`, else at `right`.
    value: [nodes] what a leaf adds to the sum.
    """

    root: Ints
    feature: Ints
    threshold: Floats
    left: Ints
    right: Ints
    value: Floats
    limit: Floats


def no_trees() -> BacktrackingTrees:
    """Trees that call no frame hopeless."""
    ints, floats = np.zeros(0, np.int64), np.zeros(0)
    return BacktrackingTrees(ints, ints, floats, ints, ints, floats, np.zeros(1))


@cache
def shipped_trees() -> BacktrackingTrees:
    """The trees that come with Meshwright."""
    return trees_from(json.loads(MODEL.read_text()))


def trees_from(stored: dict[str, Any]) -> BacktrackingTrees:
    """Trees from the lists of a JSON file."""
    if tuple(stored["features"]) != FEATURES:
        raise ValueError("the trees were trained on other features; train them again")
    return BacktrackingTrees(
        root=np.array(stored["root"], np.int64),
        feature=np.array(stored["feature"], np.int64),
        threshold=np.array(stored["threshold"], np.float64),
        left=np.array(stored["left"], np.int64),
        right=np.array(stored["right"], np.int64),
        value=np.array(stored["value"], np.float64),
        limit=np.array([stored["limit"]], np.float64),
    )


@compiled_in_place
def is_hopeless(
    c: BufferColumns, st: PackingState, trees: BacktrackingTrees, f: int
) -> bool:
    """Whether the trees call frame f, the top of the stack, hopeless."""
    if len(trees.root) == 0:
        return False
    if st.scalars[0].nodes - st.frames[f].entered < LEAST_NODES:
        return False
    measure(c, st, f)
    score = 0.0
    for root in trees.root:
        node = root
        while trees.feature[node] >= 0:
            is_left = st.features[trees.feature[node]] <= trees.threshold[node]
            node = trees.left[node] if is_left else trees.right[node]
        score += trees.value[node]
    return score > trees.limit[0]


@compiled_in_place
def measure(c: BufferColumns, st: PackingState, f: int) -> None:
    """Write the features of frame f, the top of the stack, into the state."""
    z, n, capacity = st.scalars[0], len(c.size), float(st.capacity[0])
    unplaced = largest = 0
    start = st.frames[f].start
    for p in range(start, start + st.frames[f].length):
        i = st.members[p]
        if st.offset[i] < 0:
            unplaced += 1
            largest = max(largest, c.size[i])
    low, high = st.frames[f].low, st.frames[f].highest
    least, free, above, needed, tight, used = 1.0, 0.0, 0.0, 0.0, 0, 0
    blamed = 0.0
    for k in range(low, high):
        blamed = max(blamed, st.failed[k])
        if st.total[k] == 0:
            continue
        usable = room(c, st.capacity[0], k, int(st.floor[k]))
        share = (usable - st.total[k]) / capacity
        least = min(least, share)
        free += share
        above += usable
        needed += st.total[k]
        tight += share < 0.01
        used += 1
    most = 1e-300
    for k in range(len(st.failed)):
        most = max(most, st.failed[k])
    x = st.features
    x[0] = z.depth / n
    x[1] = np.log2(1.0 + z.nodes - st.frames[f].entered)
    x[2] = np.log2(1.0 + st.frames[f].failures)
    x[3] = unplaced / n
    x[4] = np.log2(1.0 + z.nodes)
    x[5] = least
    x[6] = free / max(used, 1)
    x[7] = tight / max(used, 1)
    x[8] = max(st.frames[f].last, 0) / capacity
    x[9] = blamed / most
    x[10] = needed / max(above, 1.0)
    x[11] = largest / capacity
