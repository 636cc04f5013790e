"""When values of each group are in memory, at the times at which most is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from meshwright.autoplan.fold import Fold
from meshwright.autoplan.stores import Stores
from meshwright.ir import Program, Value
from meshwright.propagate import Graph
from meshwright.simulate.unit import Unit

NUM_TIMES = 48
"""Moments at which memory is watched; in each stretch of the program the fullest."""

type Counts = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Lives:
    """How many values of each result of each group are alive.

    counts: by (group, result), at each of the moments watched, [T].
    """

    counts: Mapping[tuple[int, int], Counts]
    num_times: int


def lives_of(
    graph: Graph, fold: Fold, stores: Stores, reused: Collection[int] = ()
) -> Lives:
    """The lives of all that is stored.

    reused: positions of outputs that take over the memory of an input.
    """
    spans = _Spans(graph.program, stores, reused)
    watched = _watch(spans, stores)
    counts: dict[tuple[int, int], Counts] = {}
    for node in graph.nodes:
        for result, (number, _) in enumerate(node.outs):
            span = spans.of.get(graph.values[number])
            if span is None:
                continue
            key = fold.group_of[node.index], result
            row = counts.setdefault(key, np.zeros(len(watched)))
            first, last = np.searchsorted(watched, (span[0], span[1] + 1))
            row[first:last] += 1
    return Lives(counts, len(watched))


class _Spans:
    """First and last moment of each stored value; a moment is a unit, bodies in place."""

    def __init__(
        self, program: Program, stores: Stores, reused: Collection[int]
    ) -> None:
        self.end = 0
        self._made: dict[Value, int] = {}
        self._read: dict[Value, int] = {}
        self._walk(stores.units)
        kept = {*program.inputs, *program.constants}
        taken = {v for i, v in enumerate(program.outputs) if i in reused} - kept
        lasting = kept | {v for v in program.outputs if isinstance(v, Value)}
        self.of: dict[Value, tuple[int, int]] = dict.fromkeys(kept, (0, self.end))
        for value, made in self._made.items():
            if value not in taken:
                last = self.end if value in lasting else self._read.get(value, made)
                self.of[value] = made, last

    def _walk(self, units: Sequence[Unit]) -> None:
        for unit in units:
            self.end += 1
            self._read |= dict.fromkeys(unit.reads, self.end)
            for body in unit.bodies:
                self._walk(body)
            if unit.bodies:  # what it reads is there until it ends
                self.end += 1
                self._read |= dict.fromkeys(unit.reads, self.end)
            self._made |= dict.fromkeys(unit.writes, self.end)


def _watch(spans: _Spans, stores: Stores) -> NDArray[np.int64]:
    """Of each stretch of the program the moment at which most bytes are alive."""
    change = np.zeros(spans.end + 2)
    for value, (first, last) in spans.of.items():
        size = stores.layout.num_bytes(value)
        change[first] += size
        change[last + 1] -= size
    alive = np.cumsum(change)[: spans.end + 1]
    bounds = np.linspace(0, len(alive), min(NUM_TIMES, len(alive)) + 1).astype(int)
    return np.array([a + int(np.argmax(alive[a:b])) for a, b in pairwise(bounds)])
