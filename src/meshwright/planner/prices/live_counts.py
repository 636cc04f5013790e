"""When values of each group are in memory, at the times at which most is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from meshwright.partitioner.propagate import Graph
from meshwright.planner.prices.op_prices import OpPrices
from meshwright.planner.prices.symmetry import ReducedGraph, producers_of
from meshwright.predict.compilers.hlo.fusion import Fusion
from meshwright.program.analysis.live_ranges import (
    BufferInterval,
    Uses,
    live_bytes,
    live_ranges,
)
from meshwright.program.ir import Op, Program, Value

NUM_TIMES = 48
"""Moments at which memory is watched; in each stretch of the program the fullest."""

type Counts = NDArray[np.float64]

type Span = tuple[int, int]
"""A first and a last moment."""

type Key = tuple[int, ...]
"""Of a value, or of a form that is kept for its readers (group, result); of what one of
them makes of it (group, result, reader's group, operand); of the addends of a sum (group,
number of results)."""


@dataclass(frozen=True, slots=True)
class LiveCounts:
    """How many values are alive at each of the moments watched, [T].

    counts: of each result that is stored, and of addends of which devices take their
    parts. copies: of values in another form than that in which they come, while those run
    that read them so; also where the value itself is computed on the fly and not stored.
    """

    counts: Mapping[Key, Counts]
    copies: Mapping[Key, Counts]
    num_times: int


def live_counts(
    graph: Graph, fold: ReducedGraph, stores: OpPrices, reused: Collection[int] = ()
) -> LiveCounts:
    """The lives of all that is stored, and of all copies.

    reused: positions of outputs that take over the memory of an input.
    """
    spans = _Spans(graph.program, stores, reused)
    watched = _watch(spans, stores)
    places = np.searchsorted(watched, np.arange(spans.end + 2)).tolist()
    counts: dict[Key, Counts] = {}
    copies: dict[Key, Counts] = {}

    def count(rows: dict[Key, Counts], key: Key, span: Span | None) -> None:
        first, last = (0, 0) if span is None else (places[span[0]], places[span[1] + 1])
        if first < last:
            row = rows.setdefault(key, np.zeros(len(watched)))
            row[first:last] += 1

    runs, class_of, maker_of = _runs(graph, spans), fold.class_of, producers_of(graph)
    brought = _brought(graph, runs)
    for node in graph.nodes:
        for result, (number, _) in enumerate(node.outs):
            key = class_of[node.index], result
            count(counts, key, spans.of.get(graph.values[number]))
            around = _around(runs, graph.consumers[number])
            count(copies, key, brought.get(number, around))
        if node.rule is not None and node.rule.reductions:
            count(counts, (class_of[node.index], len(node.outs)), runs.get(node.index))
        for operand, (number, _) in enumerate(node.ins):
            maker, result = maker_of[number]
            key = class_of[maker], result, class_of[node.index], operand
            count(copies, key, brought.get(number, runs.get(node.index)))
    return LiveCounts(counts, copies, len(watched))


def _runs(graph: Graph, spans: _Spans) -> dict[int, Span]:
    """From when to when each node runs, first and last moment.

    An op that is computed on the fly runs whenever what reads it does.
    """
    runs: dict[int, Span] = {}
    for node in reversed(graph.nodes):
        span = None if node.op is None else spans.runs.get(node.op)
        if span is None and node.op is not None:
            readers = (r for number, _ in node.outs for r in graph.consumers[number])
            span = _around(runs, readers)
        if span is not None:
            runs[node.index] = span
    return runs


def _brought(graph: Graph, runs: Mapping[int, Span]) -> dict[int, Span]:
    """By value that a loop is handed for all its turns, from when to when that runs."""
    found: dict[int, Span] = {}
    for node in graph.nodes:  # outer loops before those in them
        span = found.get(node.ins[0][0]) if node.ins else None
        if span is None and node.is_loop_constant:
            span = runs.get(node.index)
        if span is not None and (node.is_loop_constant or node.is_remat_constant):
            found |= dict.fromkeys((number for number, _ in node.outs), span)
    return found


def _around(spans: Mapping[int, Span], keys: Iterable[int]) -> Span | None:
    """From the first of these spans to the last."""
    own = [spans[key] for key in keys if key in spans]
    return (min(a for a, _ in own), max(b for _, b in own)) if own else None


class _Spans:
    """Live ranges of stored values in moments; loops' bodies lie within their loops.

    A fusion takes one moment, a region one before its bodies and one behind them, since
    what it reads is there until it ends. Moment 0 is the beginning of the program.
    of: first and last moment of each value. runs: of each fusion, by its root.
    """

    def __init__(
        self, program: Program, stores: OpPrices, reused: Collection[int]
    ) -> None:
        self.runs: dict[Op, Span] = {}
        steps: list[Uses] = [((), ())]
        self._walk(stores.units, steps)
        ranges = live_ranges(steps)
        self.end = ranges.num_steps - 1
        kept = {*program.inputs, *program.constants}
        taken = {v for i, v in enumerate(program.outputs) if i in reused} - kept
        lasting = kept | {v for v in program.outputs if isinstance(v, Value)}
        self.of: dict[Value, Span] = dict.fromkeys(kept, (0, self.end))
        for value, made in ranges.definitions.items():
            if value not in taken:
                last = self.end if value in lasting else ranges.end(value)
                # Its last reader writes over it: from there on that is counted.
                last -= value in stores.overwritten and last > made
                self.of[value] = made, last

    def _walk(self, units: Sequence[Fusion], steps: list[Uses]) -> None:
        """Append the moments of fusions to `steps`."""
        for unit in units:
            began = len(steps)
            if unit.bodies:
                steps.append((unit.reads, ()))
                for body in unit.bodies:
                    self._walk(body, steps)
            self.runs[unit.root] = began, len(steps)
            steps.append((unit.reads, unit.writes))


def _watch(spans: _Spans, stores: OpPrices) -> NDArray[np.int64]:
    """The moment at which most bytes are alive, of each stretch of the program."""
    size = stores.layout.num_bytes
    intervals = (BufferInterval(size(v), *span) for v, span in spans.of.items())
    alive = np.array(live_bytes(intervals, spans.end + 1))
    bounds = np.linspace(0, len(alive), min(NUM_TIMES, len(alive)) + 1).astype(int)
    return np.array([a + int(np.argmax(alive[a:b])) for a, b in pairwise(bounds)])
