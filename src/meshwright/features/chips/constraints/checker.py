"""The static constraints of a partition over chips, and an independent checker.

With f(u) the chip of op u:

- acyclic flow: f(u) <= f(v) for each edge (u, v) of the graph;
- no skipped chips: the chips in use are 0, 1, ..., without a hole;
- triangle dependency: if an edge leads from chip a to another chip b, then no longer
  path of chips leads from a to b. (Two chips are joined if an edge leads from one to
  the other.)

Memory is the dynamic constraint: it is known once a partition is complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from meshwright.features.chips.graph.chip_graph import ChipGraph
from meshwright.search.arrays import Ints


def violations(graph: ChipGraph, chips: Ints, num_chips: int) -> Iterator[str]:
    """Sentences that say which static constraints a partition breaks.

    There are none if the partition is valid.
    """
    if len(chips) != graph.num_ops or chips.min() < 0 or chips.max() >= num_chips:
        yield f"wanted {graph.num_ops} chips from 0 to {num_chips - 1}"
        return
    used = set(chips.tolist())
    skipped = sorted(set(range(max(used) + 1)) - used)
    if skipped:
        yield f"chip {skipped[0]} is skipped"
    ends: Sequence[tuple[int, int]] = chips[graph.edges].tolist()
    crossing = {(a, b) for a, b in ends if a != b}
    for a, b in sorted(crossing):
        if a > b:
            yield f"data flows backwards, from chip {a} to chip {b}"
            return
    longest = _longest_paths(crossing, num_chips)
    for a, b in sorted(crossing):
        if longest[a, b] > 1:
            yield (
                f"an edge leads from chip {a} to chip {b}, and a path of {longest[a, b]} "
                "edges, too"
            )


def _longest_paths(crossing: set[tuple[int, int]], num_chips: int) -> Ints:
    """The number of edges on the longest path of chips between two chips, [C, C].

    It is 0 if there is no path. crossing: pairs of chips that an edge joins.
    """
    longest = np.zeros((num_chips, num_chips), np.int64)
    for a in reversed(range(num_chips)):
        for b in sorted(b for x, b in crossing if x == a):
            longest[a, b] = max(longest[a, b], 1)
            onward = longest[b] > 0
            longest[a, onward] = np.maximum(longest[a, onward], longest[b, onward] + 1)
    return longest
