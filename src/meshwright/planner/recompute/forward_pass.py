"""What runs before the turn of a step under a plan: seconds, bytes, and what waits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from meshwright.planner.prices.op_prices import OpPrices
from meshwright.planner.solve.space import Priced
from meshwright.predict.compilers.hlo.fusion import Fusion
from meshwright.program.analysis.live_ranges import live_ranges
from meshwright.program.ir import Op, Program, Value
from meshwright.program.rewrite.rematerialization import backward_start, residuals
from meshwright.program.rewrite.rematerialized_scans import stacked_residuals

_NEARLY_ALL = 1.25
"""Times its bytes that all may take which later ops read, for a value to be a waist."""


class _Sizes:
    """Seconds and bytes of ops and values under a plan."""

    def __init__(
        self, priced: Priced, choices: tuple[int, ...], stores: OpPrices
    ) -> None:
        self.graph, self.model = priced.work.graph, priced.model
        self.choices = choices
        self._stored = frozenset(_written(stores.units))

    def is_stored(self, value: Value) -> bool:
        """Whether some unit writes it."""
        return value in self._stored

    def seconds(self, op: Op) -> float:
        """Of an op in all turns; endless of one that cannot run twice."""
        node = self.graph.op_node.get(op)
        if node is None or op.bodies or op.has_effect:
            return math.inf
        if not any(map(self.is_stored, op.results)):
            return 0.0  # with its readers, then as now
        fold = self.model.reduced_graph
        group = fold.class_of[node.index]
        members = len(fold.classes[group].members)
        return float(self.model.costs[group][self.choices[group]]) / members

    def num_bytes(self, value: Value) -> float:
        """Of one device's part."""
        number = self.graph.number[value]
        maker = self.graph.nodes[self.graph.producer[number]]
        place = [v for v, _ in maker.outs].index(number)
        group = self.model.reduced_graph.class_of[maker.index]
        return float(self.model.result_bytes[group][place][self.choices[group]])


def _written(units: Iterable[Fusion]) -> Iterator[Value]:
    for unit in units:
        yield from unit.writes
        for body in unit.bodies:
            yield from _written(body)


class ForwardPass:
    """What runs before the turn, loops whose turns can be made again opened.

    seconds: of each op, endless where it cannot run twice. num_bytes: of one device's
    part of results; endless of those that no unit stores, since their readers make them
    anyway. wanted: what is read behind the turn.
    An opened loop is its body's ops, with the bytes of all turns; ops named "slice"
    before them bring in what a turn reads, those named "carry" what the turn before
    left, and one named "loop" ends with what the loop makes once.
    """

    def __init__(
        self,
        priced: Priced,
        choices: tuple[int, ...],
        stores: OpPrices,
        stretch: float,
    ) -> None:
        """Of a plan, by its choices of a model's variables.

        stretch: bytes that may be made again at once; about so far apart are the values
        that are not made again, so that no chain leads behind them.
        """
        program = priced.work.graph.program
        turn = backward_start(program)
        self.seconds: dict[Op, float] = {}
        self.num_bytes: dict[Value, float] = {}
        self.wanted = set(residuals(program, turn))
        self._sizes = _Sizes(priced, choices, stores)
        behind = [op for op in program.ops[turn:] if op.kind == "scan"]
        for op in program.ops[:turn]:
            pairs = [(then, p) for then in behind if (p := stacked_residuals(op, then))]
            if pairs:
                self._open(op, program, pairs)
            else:
                self._note(op, 1)
        for op in cut_points(program.ops[:turn], self._sizes, stretch):
            if op in self.seconds:
                self.seconds[op] = math.inf

    def _note(self, op: Op, turns: int) -> None:
        self.seconds[op] = self._sizes.seconds(op)
        for result in op.results:
            size = turns * self._sizes.num_bytes(result)
            self.num_bytes[result] = size if self._sizes.is_stored(result) else math.inf

    def _open(
        self,
        loop: Op,
        program: Program,
        pairs: Sequence[tuple[Op, Mapping[Value, Value]]],
    ) -> None:
        """A loop, and for each that reads what it stacks the values of a turn."""
        (body,) = loop.bodies
        turns = int(str(loop.params["length"]))
        for wire in loop.wires:
            if not wire.inputs:
                continue
            inner = body.inputs[wire.inputs[0][1]]
            if wire.outputs:
                self.seconds[Op("carry", (), (inner,))] = math.inf
                self.num_bytes[inner] = turns * self._sizes.num_bytes(inner)
            else:
                assert wire.operand is not None
                operands = (loop.operands[wire.operand],)
                self.seconds[Op("slice", operands, (inner,))] = 0.0
                self.num_bytes[inner] = math.inf
        for op in body.ops:
            self._note(op, turns)
        again = {value for _, made in pairs for value in made.values()}
        alone = self._read_in_turns_only(loop, program, [then for then, _ in pairs])
        self.wanted |= {value for value in again if value in self.num_bytes}
        self.wanted -= alone
        ends = tuple(r for r in loop.results if r not in alone)
        self.seconds[Op("loop", (), ends)] = math.inf
        for result in ends:
            self.num_bytes[result] = self._sizes.num_bytes(result)

    def _read_in_turns_only(
        self, loop: Op, program: Program, pairs: Sequence[Op]
    ) -> set[Value]:
        """What a loop stacks that nobody reads as a whole."""
        stacked = {
            loop.results[w.result]
            for w in loop.wires
            if w.is_stacked and w.result is not None
        }
        for op in program.ops:
            for wire in op.wires if op in pairs else ():
                if wire.operand is not None and not wire.is_stacked:
                    stacked.discard(op.operands[wire.operand])  # pyright: ignore[reportArgumentType]
            if op not in pairs:
                stacked.difference_update(op.operands)
        return stacked.difference(program.outputs)


class _Waist(NamedTuple):
    """An op whose result is nearly all that later ones read of what was made so far.

    made: bytes that were stored up to there. size: of the result.
    """

    made: float
    size: float
    op: Op

    def is_far(self, since: float, stretch: float) -> bool:
        """Whether keeping it is worth it, so much after the last one that is kept.

        One that is half of all that was made since spares little.
        """
        return self.made - since >= max(stretch, 2 * self.size)


def cut_points(ops: Sequence[Op], sizes: _Sizes, stretch: float) -> Iterator[Op]:
    """One waist after each `stretch` of stored bytes, the smallest of a `stretch` more.

    Of what is left at the end none: the narrow place of a layer may lie behind it.
    """
    since, soon = 0.0, list[_Waist]()
    for waist in _all_waists(ops, sizes):
        if soon and waist.made - soon[0].made > stretch:
            least = min(soon, key=lambda each: each.size)
            yield least.op
            since = least.made
            soon = [each for each in soon if each.is_far(since, stretch)]
        if waist.is_far(since, stretch):
            soon.append(waist)


def _all_waists(ops: Sequence[Op], sizes: _Sizes) -> Iterator[_Waist]:
    ranges = live_ranges((op.operands, op.results) for op in ops)
    alive: dict[Value, float] = {}
    ends: dict[int, list[Value]] = {}
    made = 0.0
    for index, op in enumerate(ops):
        for result in op.results:
            size = sizes.num_bytes(result)
            made += size if sizes.is_stored(result) else 0.0
            if ranges.end(result) > index:
                alive[result] = size
                ends.setdefault(ranges.end(result), []).append(result)
        for value in ends.pop(index, ()):
            alive.pop(value, None)
        if not op.results or op.results[0] not in alive:
            continue
        size = alive[op.results[0]]
        if sizes.is_stored(op.results[0]) and sum(alive.values()) <= _NEARLY_ALL * size:
            yield _Waist(made, size, op)
