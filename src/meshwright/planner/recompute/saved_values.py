"""The choice of residuals to save for the backward pass; the others are recomputed.

Residuals are values that the backward pass reads. At a given price per byte of a saved
residual, the cheapest selection is a minimum cut of a flow network. An op on the sink's
side is recomputed and costs its seconds. A value between an op on the source's side and
an op on the sink's side is saved and costs the price of its bytes. (Partitioners of
traced graphs do the same without seconds: He and Yu, "Transcending runtime-memory
tradeoffs in checkpointing by being fusion aware", MLSys 2023.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from meshwright.partitioner.propagate import Graph
from meshwright.partitioner.structure.sites import sites_of
from meshwright.partitioner.tactics import Recompute
from meshwright.planner.prices.op_prices import OpPrices
from meshwright.planner.recompute.forward_pass import ForwardPass
from meshwright.planner.solve.space import PricedProgram
from meshwright.program.ir import Op, Value
from meshwright.program.ops import Trait, has_trait

_UNCUTTABLE = 2**30
"""Capacity of arcs that must not be cut; all other arcs together stay below it."""

_HALVINGS = 12
"""Number of halvings of the price range in a bisection, which finds a price to 1 %."""

_PRICE_RANGE = (1e-15, 1e-6)
"""Lowest and highest price of a saved byte, in seconds.

At the lowest, everything is saved. The highest is more than any op takes to compute a
byte of its results.
"""


@dataclass(frozen=True)
class Residuals:
    """The values that the forward pass can save, and the time to recompute them.

    seconds: for each op of the forward pass, the time to run it again; infinite if it
        must not.
    num_bytes: for each result of these ops, the bytes of one device's part. Infinite
        for a result that no fusion stores, since its readers compute it in any case.
    needed: values that the backward pass reads.
    """

    seconds: dict[Op, float]
    num_bytes: dict[Value, float]
    needed: frozenset[Value]

    @classmethod
    def of(cls, forward: ForwardPass) -> Residuals:
        """The residuals of a forward pass under a plan."""
        return cls(forward.seconds, forward.num_bytes, frozenset(forward.needed))

    @cached_property
    def saved_by_default(self) -> frozenset[Value]:
        """The values saved without rematerialization: all that take time to compute."""
        return self.cheapest(_PRICE_RANGE[0])

    def recompute_s(self, saved: frozenset[Value]) -> float:
        """Seconds to recompute all needed values that are not saved."""
        producer = {result: op for op in self.seconds for result in op.results}
        repeated: set[Op] = set()
        waiting = [v for v in self.needed if v not in saved]
        while waiting:
            op = producer[waiting.pop()]
            if op not in repeated:
                repeated.add(op)
                waiting += [
                    v
                    for v in op.operands
                    if isinstance(v, Value) and v in producer and v not in saved
                ]
        return sum(self.seconds[op] for op in repeated)

    def saved_bytes(self, saved: frozenset[Value]) -> float:
        """Bytes of saved values on one device."""
        return sum(self.num_bytes[v] for v in saved)

    def cheapest(self, byte_s: float) -> frozenset[Value]:
        """The values to save at a price of `byte_s` seconds per byte, by a minimum cut.

        The nodes of the flow network are source 0, sink 1, then the ops, then the
        values.
        """
        node_of: dict[Op | Value, int] = {
            each: number
            for number, each in enumerate([*self.seconds, *self.num_bytes], 2)
        }
        arcs = np.array([*self._arcs(byte_s, node_of)])
        starts, ends = arcs[:, 0].astype(np.int32), arcs[:, 1].astype(np.int32)
        weights = arcs[:, 2]
        finite = weights[weights < math.inf].sum() or 1.0
        scaled = np.minimum(weights * (0.9 * _UNCUTTABLE / finite), _UNCUTTABLE)
        size = 2 + len(node_of)
        capacities = csr_matrix((scaled.astype(np.int32), (starts, ends)), (size, size))
        flow = maximum_flow(capacities, 0, 1).flow
        left = capacities - flow
        left.data = np.maximum(left.data, 0)
        left.eliminate_zeros()
        reached = set(breadth_first_order(left, 0, return_predecessors=False).tolist())
        return frozenset(
            result
            for op in self.seconds
            if node_of[op] in reached
            for result in op.results
            if node_of[result] not in reached
        )

    def _arcs(
        self, byte_s: float, node_of: Mapping[Op | Value, int]
    ) -> Iterator[tuple[int, int, float]]:
        """Each arc of the flow network as (start, end, capacity)."""
        for op, seconds in self.seconds.items():
            node = node_of[op]
            yield 0, node, seconds
            for result in op.results:
                yield node, node_of[result], byte_s * self.num_bytes[result]
                if result in self.needed:
                    yield node_of[result], 1, math.inf
            for operand in dict.fromkeys(op.operands):
                if isinstance(operand, Value) and operand in self.num_bytes:
                    yield node_of[operand], node, math.inf

    def within(self, num_bytes: float) -> frozenset[Value]:
        """A cheap selection of values to save, which take at most `num_bytes`.

        If none is that small, the smallest selection is returned. Bisection finds the
        lowest price per byte at which the cheapest selection fits. Equal layers stop
        saving a value at the same price, which may leave memory unused: values of the
        last layers then fill it.
        """
        low, high = map(math.log, _PRICE_RANGE)
        best, larger = self.cheapest(_PRICE_RANGE[1]), self.saved_by_default
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            saved = self.cheapest(math.exp(middle))
            if self.saved_bytes(saved) <= num_bytes:
                best, high = saved, middle
            else:
                larger, low = saved, middle
        room = num_bytes - self.saved_bytes(best)
        for value in (r for op in reversed(self.seconds) for r in op.results):
            if value in larger and value not in best:
                size = self.num_bytes[value]
                if size <= room:
                    room -= size
                    best |= {value}
        return best


def recompute_within(
    priced: PricedProgram,
    choices: tuple[int, ...],
    prices: OpPrices,
    excess_bytes: float,
    spacing: float,
) -> tuple[Recompute, float] | None:
    """A rematerialization tactic that saves `excess_bytes` less, and its extra seconds.

    If that is not possible, the tactic saves as little as it can; `None` if it cannot
    save less at all.
    spacing: as in `ForwardPass`.
    """
    residuals = Residuals.of(ForwardPass(priced, choices, prices, spacing))
    before = residuals.saved_by_default
    saved = residuals.within(residuals.saved_bytes(before) - excess_bytes)
    if saved >= before:
        return None
    tactic = _tactic(residuals, saved, priced.work.graph)
    return tactic, residuals.recompute_s(saved)


def recompute_for_speed(
    priced: PricedProgram,
    choices: tuple[int, ...],
    prices: OpPrices,
    byte_s: float,
    spacing: float,
) -> tuple[Recompute, float] | None:
    """A rematerialization tactic that makes a step faster, and the seconds that it saves.

    `None` if all values that the forward pass saves take longer to recompute than to
    write and read.
    byte_s: seconds to write and read a byte.
    spacing: as in `ForwardPass`.
    """
    residuals = Residuals.of(ForwardPass(priced, choices, prices, spacing))
    before, saved = residuals.saved_by_default, residuals.cheapest(byte_s)
    less_bytes = residuals.saved_bytes(before) - residuals.saved_bytes(saved)
    gain_s = byte_s * less_bytes - residuals.recompute_s(saved)
    if saved == before or gain_s <= 0:
        return None
    return _tactic(residuals, saved, priced.work.graph), gain_s


def _tactic(residuals: Residuals, saved: frozenset[Value], graph: Graph) -> Recompute:
    """The tactic that keeps the saved values and the results of branches and calls."""
    sites = sites_of(graph)
    producers = {graph.producer[graph.number[value]] for value in saved}
    names = sites.names([graph.nodes[i] for i in producers if i in sites.place_of])
    regions = dict.fromkeys(
        op.kind
        for op in residuals.seconds
        if op.bodies and not has_trait(op.kind, Trait.LOOP)
    )
    return Recompute((*regions, *sorted(names)))
