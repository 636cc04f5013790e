"""What to keep for the backward pass, and what to compute again, under a plan.

With a price for each byte that waits at the turn this is a minimum cut. An op on the
sink's side is computed again and costs its seconds; a value between an op on the source's
side and one on the sink's is kept and costs its bytes' price. (As partitioners of traced
graphs do, there without seconds: He and Yu, "Transcending runtime-memory tradeoffs in
checkpointing by being fusion aware", MLSys 2023.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
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
from meshwright.planner.solve.space import Priced
from meshwright.program.ir import Op, Value
from meshwright.program.ops import Trait, has_trait

_ENDLESS = 2**30
"""Capacity of what is not to be cut; all finite ones together stay below."""

_STEPS = 12
"""Halvings of the range of prices, to 1 % of a price."""

_PRICES = (1e-15, 1e-6)
"""Seconds for a byte: from next to nothing to more than any op takes for what it makes."""


@dataclass(frozen=True)
class SavedValues:
    """What waits at the turn of a program under a plan.

    ops: those before the turn. seconds: of each of them, endless where it cannot run
    twice. num_bytes: of one device's part of their results; endless of those that no
    unit stores, since their readers make them anyway. wanted: what is read behind.
    """

    ops: tuple[Op, ...]
    seconds: dict[Op, float]
    num_bytes: dict[Value, float]
    wanted: frozenset[Value]

    @classmethod
    def under(
        cls, priced: Priced, choices: tuple[int, ...], stores: OpPrices, stretch: float
    ) -> SavedValues:
        """A plan; see `ForwardPass` for the arguments."""
        found = ForwardPass(priced, choices, stores, stretch)
        return cls(
            tuple(found.seconds),
            found.seconds,
            found.num_bytes,
            frozenset(found.wanted),
        )

    @cached_property
    def now(self) -> frozenset[Value]:
        """What is kept as things are: all that takes any time to make."""
        return self.best(_PRICES[0])

    def recompute_s(self, kept: frozenset[Value]) -> float:
        """Seconds of all that is made again where only this is kept."""
        maker = {result: op for op in self.ops for result in op.results}
        again: set[Op] = set()
        waiting = [v for v in self.wanted if v not in kept]
        while waiting:
            op = maker[waiting.pop()]
            if op not in again:
                again.add(op)
                waiting += [
                    v
                    for v in op.operands
                    if isinstance(v, Value) and v in maker and v not in kept
                ]
        return sum(self.seconds[op] for op in again)

    def kept_bytes(self, kept: frozenset[Value]) -> float:
        """That wait."""
        return sum(self.num_bytes[v] for v in kept)

    def best(self, price: float) -> frozenset[Value]:
        """The values to keep when a byte costs so many seconds."""
        return _Cut(self, price).kept()

    def within(self, num_bytes: float) -> frozenset[Value]:
        """Cheap ones to keep, of at most so many bytes; if none, the fewest bytes.

        The cheapest at some price of bytes. Layers that are alike have one price at which
        all of them are made again: what room that leaves is filled from the last layers
        with what would be kept at a lower price.
        """
        low, high = map(math.log, _PRICES)
        best, more = self.best(_PRICES[1]), self.now
        for _ in range(_STEPS):
            middle = (low + high) / 2
            kept = self.best(math.exp(middle))
            if self.kept_bytes(kept) <= num_bytes:
                best, high = kept, middle
            else:
                more, low = kept, middle
        left = num_bytes - self.kept_bytes(best)
        for value in (r for op in reversed(self.ops) for r in op.results):
            if value in more and value not in best:
                size = self.num_bytes[value]
                if size <= left:
                    left -= size
                    best |= {value}
        return best


class _Cut:
    """A flow network: source 0, sink 1, the ops, then the values."""

    def __init__(self, waits: SavedValues, price: float) -> None:
        self.waits = waits
        self.price = price
        self._op = {op: 2 + i for i, op in enumerate(waits.ops)}
        first = 2 + len(waits.ops)
        self._value = {v: first + i for i, v in enumerate(waits.num_bytes)}
        self._size = first + len(self._value)

    def kept(self) -> frozenset[Value]:
        ends = np.array([*self._arcs()])
        one, two = ends[:, 0].astype(np.int32), ends[:, 1].astype(np.int32)
        weights = ends[:, 2]
        finite = weights[weights < math.inf].sum() or 1.0
        scaled = np.minimum(weights * (0.9 * _ENDLESS / finite), _ENDLESS)
        capacities = csr_matrix(
            (scaled.astype(np.int32), (one, two)), (self._size, self._size)
        )
        flow = maximum_flow(capacities, 0, 1).flow
        left = capacities - flow
        left.data = np.maximum(left.data, 0)
        left.eliminate_zeros()
        reached = set(breadth_first_order(left, 0, return_predecessors=False).tolist())
        return frozenset(
            result
            for op in self.waits.ops
            if self._op[op] in reached
            for result in op.results
            if self._value[result] not in reached
        )

    def _arcs(self) -> Iterator[tuple[int, int, float]]:
        for op, at in self._op.items():
            yield 0, at, self.waits.seconds[op]
            for result in op.results:
                place = self._value[result]
                yield at, place, self.price * self.waits.num_bytes[result]
                if result in self.waits.wanted:
                    yield place, 1, math.inf
            for operand in dict.fromkeys(op.operands):
                if isinstance(operand, Value) and operand in self._value:
                    yield self._value[operand], at, math.inf


def recompute_within(
    priced: Priced,
    choices: tuple[int, ...],
    stores: OpPrices,
    too_many: float,
    stretch: float,
) -> tuple[Recompute, float] | None:
    """What keeps so many bytes less than a plan does, and the seconds that it takes.

    Of as many as can be spared; None if none can. stretch: as of `ForwardPass`.
    """
    waits = SavedValues.under(priced, choices, stores, stretch)
    kept = waits.within(waits.kept_bytes(waits.now) - too_many)
    if kept >= waits.now:
        return None
    return _tactic(waits, kept, priced.work.graph), waits.recompute_s(kept)


def _tactic(waits: SavedValues, kept: frozenset[Value], graph: Graph) -> Recompute:
    """The tactic that keeps this, and what branches make."""
    sites = sites_of(graph)
    makers = {graph.producer[graph.number[value]] for value in kept}
    names = sites.names([graph.nodes[i] for i in makers if i in sites.place_of])
    regions = dict.fromkeys(
        op.kind for op in waits.ops if op.bodies and not has_trait(op.kind, Trait.LOOP)
    )
    return Recompute((*regions, *sorted(names)))
