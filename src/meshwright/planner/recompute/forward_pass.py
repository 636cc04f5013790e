"""The forward pass of a step under a plan: its residuals, and seconds of each op.

Residuals are values that the backward pass reads. The boundary between forward and
backward pass is the position at which most bytes are live
(`program.rewrite.rematerialization.backward_start`). Cut points of rematerialization
are program points at which one value has nearly all live bytes. That value is kept, so
that no chain of recomputation passes the point.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from meshwright.planner.prices.op_prices import OpPrices
from meshwright.planner.solve.space import PricedProgram
from meshwright.predict.compilers.model.fusion import Fusion
from meshwright.program.analysis.live_ranges import live_ranges
from meshwright.program.ir import Op, Program, Value
from meshwright.program.rewrite.rematerialization import (
    backward_start,
    residuals,
    stacked_residuals,
)

_NEARLY_ALL = 1.25
"""Largest ratio of all live bytes at a cut point to the bytes of the kept value."""


class _PlanCosts:
    """Seconds of ops, and bytes of values on one device, under a plan."""

    def __init__(
        self, priced: PricedProgram, choices: tuple[int, ...], prices: OpPrices
    ) -> None:
        self.graph, self.program = priced.work.graph, priced.model
        self.choices = choices
        self._stored = frozenset(_written_values(prices.fusions))

    def is_stored(self, value: Value) -> bool:
        """Whether at least one fusion writes the value to memory."""
        return value in self._stored

    def seconds(self, op: Op) -> float:
        """Seconds of all executions of an op in a step.

        Infinite if it must not run twice.
        """
        node = self.graph.op_node.get(op)
        if node is None or op.bodies or op.has_effect:
            return math.inf
        if not any(map(self.is_stored, op.results)):
            return 0.0  # it is fused into its readers, which compute it in any case
        reduced = self.program.reduced_graph
        number = reduced.class_of[node.index]
        members = len(reduced.classes[number].members)
        return float(self.program.costs[number][self.choices[number]]) / members

    def num_bytes(self, value: Value) -> float:
        """Bytes of one device's part of a value."""
        index = self.graph.number[value]
        producer = self.graph.nodes[self.graph.producer[index]]
        result = [v for v, _ in producer.outs].index(index)
        number = self.program.reduced_graph.class_of[producer.index]
        return float(self.program.result_bytes[number][result][self.choices[number]])


def _written_values(fusions: Iterable[Fusion]) -> Iterator[Value]:
    for fusion in fusions:
        yield from fusion.writes
        for body in fusion.bodies:
            yield from _written_values(body)


class ForwardPass:
    """Ops of the forward pass; loops whose iterations can be recomputed are opened.

    An opened loop is replaced by the ops of its body, with the bytes of all iterations.
    Before them come ops named "slice", for the elements of stacked arrays that an
    iteration reads, and ops named "carry", for the values that the iteration before
    passes on. After them comes an op named "loop", whose results the loop produces
    once.
    seconds, num_bytes, needed: as in `Residuals`.
    """

    def __init__(
        self,
        priced: PricedProgram,
        choices: tuple[int, ...],
        prices: OpPrices,
        spacing: float,
    ) -> None:
        """Read the forward pass of the plan with these choices.

        spacing: bytes that may be recomputed at once. At cut points about this many
            bytes apart a value is always kept, so that no chain of recomputation passes
            it.
        """
        program = priced.work.graph.program
        start = backward_start(program)
        self.seconds: dict[Op, float] = {}
        self.num_bytes: dict[Value, float] = {}
        self.needed = set(residuals(program, start))
        self._costs = _PlanCosts(priced, choices, prices)
        backward = [op for op in program.ops[start:] if op.kind == "scan"]
        for op in program.ops[:start]:
            pairs = [
                (scan, p) for scan in backward if (p := stacked_residuals(op, scan))
            ]
            if pairs:
                self._add_opened(op, program, pairs)
            else:
                self._add(op, 1)
        for op in cut_points(program.ops[:start], self._costs, spacing):
            if op in self.seconds:
                self.seconds[op] = math.inf

    def _add(self, op: Op, iterations: int) -> None:
        self.seconds[op] = self._costs.seconds(op)
        for result in op.results:
            size = iterations * self._costs.num_bytes(result)
            self.num_bytes[result] = size if self._costs.is_stored(result) else math.inf

    def _add_opened(
        self,
        loop: Op,
        program: Program,
        pairs: Sequence[tuple[Op, Mapping[Value, Value]]],
    ) -> None:
        """Add the ops of a loop's body in place of the loop.

        pairs: each backward loop that reads stacked results of this loop, with the
            values of the body that it reads in each iteration.
        """
        (body,) = loop.bodies
        iterations = int(str(loop.params["length"]))
        for wire in loop.wires:
            if not wire.inputs:
                continue
            inner = body.inputs[wire.inputs[0][1]]
            if wire.outputs:
                self.seconds[Op("carry", (), (inner,))] = math.inf
                self.num_bytes[inner] = iterations * self._costs.num_bytes(inner)
            else:
                assert wire.operand is not None
                operands = (loop.operands[wire.operand],)
                self.seconds[Op("slice", operands, (inner,))] = 0.0
                self.num_bytes[inner] = math.inf
        for op in body.ops:
            self._add(op, iterations)
        read = {value for _, values in pairs for value in values.values()}
        by_iteration = _read_by_iteration(loop, program, [scan for scan, _ in pairs])
        self.needed |= {value for value in read if value in self.num_bytes}
        self.needed -= by_iteration
        results = tuple(r for r in loop.results if r not in by_iteration)
        self.seconds[Op("loop", (), results)] = math.inf
        for result in results:
            self.num_bytes[result] = self._costs.num_bytes(result)


def _read_by_iteration(loop: Op, program: Program, scans: Sequence[Op]) -> set[Value]:
    """Stacked results of a loop that only the loops `scans` read, slice by slice."""
    stacked = {
        loop.results[w.result]
        for w in loop.wires
        if w.is_stacked and w.result is not None
    }
    for op in program.ops:
        for wire in op.wires if op in scans else ():
            if wire.operand is not None and not wire.is_stacked:
                stacked.discard(op.operands[wire.operand])  # pyright: ignore[reportArgumentType]
        if op not in scans:
            stacked.difference_update(op.operands)
    return stacked.difference(program.outputs)


class _CutPoint(NamedTuple):
    """An op after which its result is nearly all that is live.

    stored_bytes: bytes of all results stored up to this op.
    num_bytes: bytes of the op's result.
    """

    stored_bytes: float
    num_bytes: float
    op: Op

    def is_far(self, start_bytes: float, spacing: float) -> bool:
        """Whether the point is far enough behind the last one to be worth keeping.

        It is not if the result has more than half of all bytes stored since the last
        kept point, which is at `start_bytes`.
        """
        return self.stored_bytes - start_bytes >= max(spacing, 2 * self.num_bytes)


def cut_points(ops: Sequence[Op], sizes: _PlanCosts, spacing: float) -> Iterator[Op]:
    """Ops at cut points that are about `spacing` stored bytes apart.

    Of the cut points within another `spacing`, the one with the smallest result is
    taken. The last stretch of ops gets none, since a smaller result may lie behind its
    end.
    """
    start_bytes, window = 0.0, list[_CutPoint]()
    for point in _all_cut_points(ops, sizes):
        if window and point.stored_bytes - window[0].stored_bytes > spacing:
            smallest = min(window, key=lambda each: each.num_bytes)
            yield smallest.op
            start_bytes = smallest.stored_bytes
            window = [each for each in window if each.is_far(start_bytes, spacing)]
        if point.is_far(start_bytes, spacing):
            window.append(point)


def _all_cut_points(ops: Sequence[Op], sizes: _PlanCosts) -> Iterator[_CutPoint]:
    ranges = live_ranges((op.operands, op.results) for op in ops)
    live: dict[Value, float] = {}
    ends: dict[int, list[Value]] = {}
    stored_bytes = 0.0
    for index, op in enumerate(ops):
        for result in op.results:
            size = sizes.num_bytes(result)
            stored_bytes += size if sizes.is_stored(result) else 0.0
            if ranges.end(result) > index:
                live[result] = size
                ends.setdefault(ranges.end(result), []).append(result)
        for value in ends.pop(index, ()):
            live.pop(value, None)
        if not op.results or op.results[0] not in live:
            continue
        size = live[op.results[0]]
        if sizes.is_stored(op.results[0]) and sum(live.values()) <= _NEARLY_ALL * size:
            yield _CutPoint(stored_bytes, size, op)
