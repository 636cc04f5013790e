"""The choices of all groups as one integer program: a cost each, and one for each pair.

A value with several readers gets a node of its own, a *view*: the form in which it is
kept for them. What leads to it is paid once, what leads on from it by each reader; so
gathering once or at every use is a choice like any other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.partitioner.propagate import Node, State
from meshwright.planner.prices.compute_times import ComputeTimes
from meshwright.planner.prices.live_counts import Key
from meshwright.planner.prices.resharding import ReshardingPrices
from meshwright.planner.prices.strategy import ALL_REDUCE, Strategies, Strategy
from meshwright.planner.prices.symmetry import ClassEdge, NodeClass, ReducedGraph
from meshwright.planner.prices.tables import Form, Forms, Needs, Tables
from meshwright.planner.prices.value_roles import Role, roles_of
from meshwright.program.ir import Value
from meshwright.program.rules.rule import Dims

type Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SharedValue:
    """A value of a group as its readers find it; forms are its choices."""

    producer: int
    result: int
    shardings: tuple[Form, ...]


@dataclass(frozen=True, slots=True)
class PairCost:
    """Seconds, and bytes of a copy, over the choices of two variables.

    copy: what the second makes of the first's value, by its key in `LiveCounts.copies`; of
    `num_bytes`, those of the whole value, it takes the shares `extra` [A, B].
    """

    first: int
    second: int
    seconds: Table
    copy_key: Key
    num_bytes: float
    copy_share: Table


@dataclass(frozen=True, slots=True)
class IntegerProgram:
    """Variables: the groups in order, then the views.

    choices: of each group. costs: seconds per choice and variable. held: per group, per
    result, bytes of one value by choice; where an op takes sums, then those of addends
    of which devices take their parts.
    """

    reduced_graph: ReducedGraph
    choices: tuple[tuple[Strategy, ...], ...]
    shared_values: tuple[SharedValue, ...]
    costs: tuple[Table, ...]
    pair_costs: tuple[PairCost, ...]
    result_bytes: tuple[tuple[Table, ...], ...]


class IntegerProgramBuilder:
    """Prices all choices on one mesh."""

    def __init__(
        self,
        state: State,
        fold: ReducedGraph,
        strategies: Strategies,
        compute: ComputeTimes,
    ) -> None:
        self.state = state
        self.graph = state.graph
        self.reduced_graph = fold
        self.strategies = strategies
        self.compute = compute
        self._roles = roles_of(state.graph.program)
        self._tables = Tables(compute)
        self._ends: dict[tuple[int, Dims, Role], Table] = {}
        self._computed: dict[int, Table] = {}  # seconds by node, collectives left out

    def build(self, moves: ReshardingPrices) -> IntegerProgram:
        """The model with these prices of collectives; again, it is quicker."""
        self._ends.clear()
        self._tables.forget_prices()
        choices = tuple(self.strategies.of(g.node) for g in self.reduced_graph.classes)
        costs = [
            self._costs(group, own, moves)
            for group, own in zip(self.reduced_graph.classes, choices, strict=True)
        ]
        by_value: dict[tuple[int, int], list[ClassEdge]] = defaultdict(list)
        for edge in self.reduced_graph.edges:
            by_value[edge.producer, edge.result].append(edge)
        views: list[SharedValue] = []
        links: list[PairCost] = []
        for (maker, result), edges in by_value.items():
            _, dims = self.reduced_graph.classes[maker].node.outs[result]
            made = self._tables.made(choices[maker], dims)
            if len(edges) == 1:
                links.append(self._link(maker, made, edges[0], choices, moves))
                continue
            needs = [self._needs(e, choices[e.consumer]) for e in edges]
            forms = self._tables.kept(made, needs)
            number = len(choices) + len(views)
            views.append(SharedValue(maker, result, forms))
            costs.append(np.zeros(len(forms)))
            runs = self.reduced_graph.classes[maker].runs
            links.append(
                self._view_link(maker, result, number, made, forms, runs, moves)
            )
            links += [self._link(number, forms, edge, choices, moves) for edge in edges]
        held = tuple(
            tuple(self._held(group.node, own))
            for group, own in zip(self.reduced_graph.classes, choices, strict=True)
        )
        return IntegerProgram(
            self.reduced_graph, choices, tuple(views), tuple(costs), tuple(links), held
        )

    # -- one group ------------------------------------------------------------------

    def _costs(
        self, group: NodeClass, choices: Sequence[Strategy], moves: ReshardingPrices
    ) -> Table:
        seconds = self._computed.get(group.node.index)
        if seconds is None:
            seconds = self.compute.seconds(group.node, choices)
            self._computed[group.node.index] = seconds
        return group.runs * (seconds + self._sums(group.node, choices, moves))

    def _sums(
        self, node: Node, choices: Sequence[Strategy], moves: ReshardingPrices
    ) -> Table:
        """Seconds of the collectives that a node itself writes, by choice."""
        seconds = np.zeros(len(choices))
        if node.rule is not None and node.rule.expand is not None:
            for index, strategy in enumerate(choices):
                for kind, axes, num_bytes in self.compute.collectives(node, strategy):
                    seconds[index] += moves.seconds(kind, axes, num_bytes, Role.OTHER)
        if not any(strategy.reductions for strategy in choices):
            return seconds
        role = self._role(node.outs[0][0])
        for value, dims in node.outs:
            key = id(choices), dims, role
            lines = self._ends.get(key)
            if lines is None:
                found = [self._end_line(s, dims, role, moves) for s in choices]
                lines = self._ends[key] = np.array(found)
            whole = self.compute.prices.layout.num_bytes(self._value(value))
            seconds += lines[:, 0] + whole * lines[:, 1]
        return seconds

    def _end_line(
        self, strategy: Strategy, dims: Dims, role: Role, moves: ReshardingPrices
    ) -> tuple[float, float]:
        """Seconds to take a result's sums, as a line over the bytes of the whole value."""
        if not strategy.reductions:
            return 0.0, 0.0
        share = 1 / self.compute.parts(strategy.cuts(dims))
        start = per_byte = 0.0
        ends = [(dim, "reduce_scatter") for dim in range(len(dims))]
        for end, kind in (*ends, (ALL_REDUCE, "all_reduce")):
            run = tuple(axis for axis, what in strategy.reductions if what == end)
            if run:
                first, each = moves.line(kind, run, role)
                start, per_byte = start + first, per_byte + share * each
                share /= self.state.mesh.size(run)
        return start, per_byte

    def _role(self, number: int) -> Role:
        return self._roles.get(self._value(number), Role.OTHER)

    def _value(self, number: int) -> Value:
        return self.graph.values[number]

    def _bytes(self, number: int) -> int:
        return self.compute.prices.layout.num_bytes(self._value(number))

    def _held(self, node: Node, choices: Sequence[Strategy]) -> Iterator[Table]:
        """Bytes of each result by choice, and of addends that are scattered."""
        for number, dims in node.outs:
            made = self._tables.made(choices, dims)
            yield self._bytes(number) / self._tables.parts(made)
        if node.rule is not None and node.rule.reductions:
            number, dims = node.outs[0]
            parts = np.array([self.compute.parts(s.cuts(dims)) for s in choices])
            is_scattered = [any(dim >= 0 for _, dim in s.reductions) for s in choices]
            yield np.where(is_scattered, self._bytes(number) / parts, 0.0)

    # -- between two ----------------------------------------------------------------

    def _needs(self, edge: ClassEdge, choices: Sequence[Strategy]) -> Needs:
        """How a reader wants an operand, by its choice."""
        node = self.reduced_graph.classes[edge.consumer].node
        dims = node.ins[edge.operand][1]
        group = self.strategies.carried(node)
        is_carried = bool(group) and _operand_places(node)[edge.operand] in group
        return self._tables.needed(choices, dims, is_carried, len(group) > 1)

    def _link(
        self,
        first: int,
        forms: Forms,
        edge: ClassEdge,
        choices: Sequence[Sequence[Strategy]],
        moves: ReshardingPrices,
    ) -> PairCost:
        needs = self._needs(edge, choices[edge.consumer])
        number = self.reduced_graph.classes[edge.producer].node.outs[edge.result][0]
        table, extra = self._table(forms, needs, number, moves)
        copy = edge.producer, edge.result, edge.consumer, edge.operand
        seconds = edge.runs * table
        return PairCost(first, edge.consumer, seconds, copy, self._bytes(number), extra)

    def _view_link(  # noqa: PLR0913
        self, maker: int, result: int, number: int, made: Forms, forms: Forms,
        runs: float, moves: ReshardingPrices,
    ) -> PairCost:  # fmt: skip
        value = self.reduced_graph.classes[maker].node.outs[result][0]
        table, _ = self._table(made, self._tables.as_needs(forms), value, moves)
        extra = self._tables.extra(made, forms)
        copy = maker, result
        return PairCost(maker, number, runs * table, copy, self._bytes(value), extra)

    def _table(
        self, forms: Forms, needs: Needs, number: int, moves: ReshardingPrices
    ) -> tuple[Table, Table]:
        """Seconds from each form of a value to each that is needed, and shares copied."""
        role = self._role(number)
        start, per_byte, copied = self._tables.steps(forms, needs, role, moves)
        return start + self._bytes(number) * per_byte, copied


def _operand_places(node: Node) -> list[int]:
    """Per value that an op reads, as which of its operands."""
    assert node.op is not None
    return [i for i, a in enumerate(node.op.operands) if isinstance(a, Value)]
