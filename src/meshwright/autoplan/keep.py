"""What to keep for the backward pass, and what to compute again, under a plan.

With a price for each byte that waits at the turn this is a minimum cut. An op on the
sink's side is computed again and costs its seconds; a value between an op on the source's
side and one on the sink's is kept and costs its bytes' price. (As partitioners of traced
graphs do, there without seconds: He and Yu, "Transcending runtime-memory tradeoffs in
checkpointing by being fusion aware", MLSys 2023.)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from meshwright.autoplan.space import Priced
from meshwright.autoplan.stores import Stores
from meshwright.ir import Atom, Op, Value
from meshwright.ir.recompute import turn_of, waiting
from meshwright.tactics import Recompute
from meshwright.tactics.sites import Place, sites_of

_ENDLESS = 2**30
"""Capacity of what is not to be cut; all finite ones together stay below."""

_NEARLY_ALL = 1.25
"""Times its bytes that all may take which later ops read, for a value to be a waist."""

_STEPS = 24
"""Halvings of the range of prices."""

_PRICES = (1e-15, 1e-6)
"""Seconds for a byte: from next to nothing to more than any op takes for what it makes."""


@dataclass(frozen=True, slots=True)
class Waiting:
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
        cls, priced: Priced, choices: tuple[int, ...], stores: Stores, stretch: float
    ) -> Waiting:
        """A plan, by its choices of a model's variables.

        stretch: bytes that may be made again at once; about so far apart are the values
        that are not made again, so that no chain leads behind them.
        """
        stored = frozenset(v for unit in stores.units for v in unit.writes)
        graph, model = priced.work.graph, priced.model
        fold, program = model.fold, graph.program
        turn = turn_of(program)
        ops = program.ops[:turn]
        seconds: dict[Op, float] = {}
        num_bytes: dict[Value, float] = {}
        sizes: dict[Value, float] = {}
        for op in ops:
            node = graph.op_node.get(op)
            if node is None or op.bodies or op.has_effect:
                seconds[op] = math.inf
            else:
                group = fold.group_of[node.index]
                members = len(fold.groups[group].members)
                seconds[op] = float(model.costs[group][choices[group]]) / members
                if stored.isdisjoint(op.results):
                    seconds[op] = 0.0  # with its readers, then as now
            for result in op.results:
                number = graph.number[result]
                maker = graph.nodes[graph.producer[number]]
                place = [v for v, _ in maker.outs].index(number)
                group = fold.group_of[maker.index]
                held = model.held[group][place][choices[group]]
                sizes[result] = float(held)
                num_bytes[result] = float(held) if result in stored else math.inf
        for op in _waists(ops, sizes, stored, stretch):
            seconds[op] = math.inf
        return cls(ops, seconds, num_bytes, frozenset(waiting(program, turn)))

    def kept_bytes(self, kept: frozenset[Value]) -> float:
        """That wait."""
        return sum(self.num_bytes[v] for v in kept)

    def best(self, price: float) -> frozenset[Value]:
        """The values to keep when a byte costs so many seconds."""
        return _Cut(self, price).kept()

    def within(self, num_bytes: float) -> frozenset[Value]:
        """The cheapest to keep of at most so many bytes; if none, the fewest bytes."""
        low, high = map(math.log, _PRICES)
        best = self.best(_PRICES[1])
        for _ in range(_STEPS):
            middle = (low + high) / 2
            kept = self.best(math.exp(middle))
            if self.kept_bytes(kept) <= num_bytes:
                best, high = kept, middle
            else:
                low = middle
        return best


def _waists(
    ops: Sequence[Op],
    sizes: Mapping[Value, float],
    stored: Collection[Value],
    stretch: float,
) -> Iterator[Op]:
    """Ops whose result is nearly all that later ones read of what was made so far.

    Of those the first after each `stretch` of stored bytes.
    """
    last: dict[Atom, int] = {}
    for index, op in enumerate(ops):
        last |= dict.fromkeys(op.operands, index)
    alive: dict[Value, float] = {}
    ends: dict[int, list[Value]] = {}
    since = 0.0
    for index, op in enumerate(ops):
        for result in op.results:
            since += sizes[result] if result in stored else 0.0
            if last.get(result, index) > index:
                alive[result] = sizes[result]
                ends.setdefault(last[result], []).append(result)
        for value in ends.pop(index, ()):
            alive.pop(value, None)
        if since < stretch or not op.results or op.results[0] not in alive:
            continue
        size = alive[op.results[0]]
        if size > since / 2:
            continue  # to keep it spares little
        if op.results[0] in stored and sum(alive.values()) <= _NEARLY_ALL * size:
            since = 0.0
            yield op


class _Cut:
    """A flow network: source 0, sink 1, the ops, then the values."""

    def __init__(self, waits: Waiting, price: float) -> None:
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
    stores: Stores,
    too_many: float,
    stretch: float,
) -> Recompute | None:
    """What keeps so many bytes less than a plan does; None if nothing can be spared.

    stretch: bytes that may be made again at once.

    Kept are all ops of a site, or none: the layers that one line writes are alike.
    """
    waits = Waiting.under(priced, choices, stores, stretch)
    now = waits.best(_PRICES[0])
    kept = waits.within(waits.kept_bytes(now) - too_many)
    if kept >= now:
        return None
    graph = priced.work.graph
    sites = sites_of(graph)
    told: dict[tuple[Place, int], float] = {}
    for value in kept | now:
        place = sites.place_of.get(graph.producer[graph.number[value]])
        if place is None:
            continue
        sign = 1 if value in kept else -1
        told[place] = told.get(place, 0.0) + sign * waits.num_bytes[value]
    chosen: dict[Place, list[int]] = {}
    for (place, number), balance in told.items():
        if balance > 0:
            chosen.setdefault(place, []).append(number)
    names = [
        name
        for place, numbers in chosen.items()
        for name in (
            [sites.name(place)]
            if len(numbers) == len(sites.of[place])
            else [sites.name(place, number) for number in numbers]
        )
    ]
    regions = dict.fromkeys(op.kind for op in waits.ops if op.bodies)
    return Recompute((*regions, *sorted(names)))
