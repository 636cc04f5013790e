"""The number of values of each node class that are in memory at moments of a step.

The planner multiplies them by bytes to predict peak memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from meshwright.partitioner.propagate import Graph
from meshwright.planner.prices.op_prices import OpPrices
from meshwright.planner.strategies.symmetry import (
    ReducedGraph,
    loop_invariants,
    producers_of,
)
from meshwright.predict.compilers.model.fusion import Fusion
from meshwright.program.analysis.live_ranges import (
    BufferInterval,
    Uses,
    live_bytes,
    live_ranges,
)
from meshwright.program.ir import Op, Program, Value
from meshwright.search.arrays import Floats, Ints

NUM_TIMES = 48
"""Number of sampled moments.

The program is divided into as many stretches of equal length. From each stretch, the
moment with the most live bytes is taken.
"""

type Span = tuple[int, int]
"""A first and a last moment, both included."""

type BufferKey = tuple[int, ...]
"""The key of a kind of buffer, made of numbers of node classes and of their results.

(class, result) is a value, or its copy that several readers share; (class, result,
reader's class, operand) is the copy of one reader; (class, number of results) is a
partial result that is reduce-scattered.
"""


@dataclass(frozen=True, slots=True)
class LiveCounts:
    """The number of live buffers of each kind at each of the T sampled moments.

    counts: for each key, results that are stored, and partial results that are
        reduce-scattered, [T].
    copies: for each key, resharded copies, which are live while their readers run, [T].
        Values that are fused into their readers have copies, too, though they are not
        stored.
    """

    counts: Mapping[BufferKey, Floats]
    copies: Mapping[BufferKey, Floats]
    num_times: int


def live_counts(
    graph: Graph,
    reduced: ReducedGraph,
    prices: OpPrices,
    reused: Collection[int] = (),
) -> LiveCounts:
    """Count, at each sampled moment of a step, the live values of each class of nodes.

    Resharded copies of values, which other nodes read, are counted apart. Live ranges
    are those of the program after fusion.
    reduced: the classes of equal nodes.
    reused: positions of outputs that are written into the buffer of an input.
    """
    ranges = _LiveSpans(graph.program, prices, reused)
    samples = _sampled_moments(ranges, prices)
    places = np.searchsorted(samples, np.arange(ranges.end + 2)).tolist()
    counts: dict[BufferKey, Floats] = {}
    copies: dict[BufferKey, Floats] = {}

    def count(rows: dict[BufferKey, Floats], key: BufferKey, span: Span | None) -> None:
        first, last = (0, 0) if span is None else (places[span[0]], places[span[1] + 1])
        if first < last:
            row = rows.setdefault(key, np.zeros(len(samples)))
            row[first:last] += 1

    class_of, producers = reduced.class_of, producers_of(graph)
    runs = _running_spans(graph, ranges)
    wires = loop_invariants(graph)
    invariant = {v: runs[w.index] for v, w in wires.items() if w.index in runs}
    for node in graph.nodes:
        for result, (number, _) in enumerate(node.outs):
            key = class_of[node.index], result
            count(counts, key, ranges.of.get(graph.values[number]))
            reading = _enclosing_span(runs, graph.consumers[number])
            count(copies, key, invariant.get(number, reading))
        if node.rule is not None and node.rule.reductions:
            count(counts, (class_of[node.index], len(node.outs)), runs.get(node.index))
        for operand, (number, _) in enumerate(node.ins):
            producer, result = producers[number]
            key = class_of[producer], result, class_of[node.index], operand
            count(copies, key, invariant.get(number, runs.get(node.index)))
    return LiveCounts(counts, copies, len(samples))


def _running_spans(graph: Graph, ranges: _LiveSpans) -> dict[int, Span]:
    """First and last moment at which each node runs, by index of the node.

    An op that is fused into its readers runs when these run.
    """
    runs: dict[int, Span] = {}
    for node in reversed(graph.nodes):
        span = None if node.op is None else ranges.runs.get(node.op)
        if span is None and node.op is not None:
            readers = (r for number, _ in node.outs for r in graph.consumers[number])
            span = _enclosing_span(runs, readers)
        if span is not None:
            runs[node.index] = span
    return runs


def _enclosing_span(spans: Mapping[int, Span], keys: Iterable[int]) -> Span | None:
    """The shortest span that contains the spans of all `keys`.

    `None` if no key has a span.
    """
    own = [spans[key] for key in keys if key in spans]
    return (min(a for a, _ in own), max(b for _, b in own)) if own else None


class _LiveSpans:
    """First and last moments at which values are live and fusions run.

    The moments of a loop's body lie within the loop's span, as if it ran once. A fusion
    takes one moment. A loop or branch takes one more before its bodies, since its
    operands stay live until it ends. Moment 0 is the start of the program.
    of: span in which each value is live.
    runs: span in which each fusion runs, by the fusion's root op.
    """

    def __init__(
        self, program: Program, prices: OpPrices, reused: Collection[int]
    ) -> None:
        self.runs: dict[Op, Span] = {}
        steps: list[Uses] = [((), ())]
        self._append(prices.fusions, steps)
        ranges = live_ranges(steps)
        self.end = ranges.num_steps - 1
        held = {*program.inputs, *program.constants}
        in_place = {v for i, v in enumerate(program.outputs) if i in reused} - held
        lasting = held | {v for v in program.outputs if isinstance(v, Value)}
        self.of: dict[Value, Span] = dict.fromkeys(held, (0, self.end))
        for value, made in ranges.definitions.items():
            if value not in in_place:
                last = self.end if value in lasting else ranges.end(value)
                # The last reader writes its result into the value's buffer: from then
                # on the result is counted instead.
                last -= value in prices.overwritten and last > made
                self.of[value] = made, last

    def _append(self, fusions: Sequence[Fusion], steps: list[Uses]) -> None:
        """Append a step for each fusion, and one more before the bodies of a loop."""
        for fusion in fusions:
            start = len(steps)
            if fusion.bodies:
                steps.append((fusion.reads, ()))
                for body in fusion.bodies:
                    self._append(body, steps)
            self.runs[fusion.root] = start, len(steps)
            steps.append((fusion.reads, fusion.writes))


def _sampled_moments(ranges: _LiveSpans, prices: OpPrices) -> Ints:
    """The sampled moments: the one with most live bytes of each stretch.

    The stretches are equally long parts of the program.
    """
    size = prices.layouts.num_bytes
    intervals = (BufferInterval(size(v), *span) for v, span in ranges.of.items())
    live = np.array(live_bytes(intervals, ranges.end + 1))
    bounds = np.linspace(0, len(live), min(NUM_TIMES, len(live)) + 1).astype(int)
    return np.array([a + int(np.argmax(live[a:b])) for a, b in pairwise(bounds)])
