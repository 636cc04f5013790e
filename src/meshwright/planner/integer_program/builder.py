"""The construction of the planner's integer program: its variables and their costs.

Alpa's formulation (Zheng et al., OSDI 2022, section 4.2), over classes of equal nodes.
A node is an op or an input of the program:

- A variable for each node class. Its choices are the class's strategies, which are ways
  to partition the node. The cost of a choice is its seconds in a step, to compute and
  to reduce partial results.
- A variable for each value with several readers (`SharedValue`). Its choices are the
  shardings in which the value can be kept. Resharding from the producer to the kept
  sharding is paid once, and from there by each reader. So whether to gather once or at
  every use is a choice like any other.
- A pair cost for two variables that a value connects (`PairCost`): for each pair of
  choices the seconds of resharding the value, and the bytes of the resharded copy.
- The bytes of each result by choice; `live_counts` says when they are in memory.

`IntegerProgramBuilder.build` builds the program, `planner.solve` solves it.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

from meshwright.partitioner.propagate import Node, State
from meshwright.planner.integer_program.integer_program import (
    IntegerProgram,
    PairCost,
    SharedValue,
)
from meshwright.planner.integer_program.resharding_tables import (
    OperandShardings,
    ReshardingTables,
    ResultShardings,
    resharding_lines,
)
from meshwright.planner.prices.compute_times import ComputeTimes
from meshwright.planner.prices.resharding import ReshardingPrices
from meshwright.planner.prices.value_roles import Role, roles_of
from meshwright.planner.strategies.enumeration import Strategies
from meshwright.planner.strategies.strategy import ALL_REDUCE, Strategy, StrategySet
from meshwright.planner.strategies.symmetry import ClassEdge, NodeClass, ReducedGraph
from meshwright.program.rules.rule import Dims
from meshwright.search.arrays import Floats


class IntegerProgramBuilder:
    """Builds the integer program of one mesh from predicted seconds (prices).

    The prices are those of ops and of resharding values.
    """

    prices: ReshardingPrices  # of the latest `build`

    def __init__(
        self,
        state: State,
        reduced_graph: ReducedGraph,
        strategies: Strategies,
        compute: ComputeTimes,
    ) -> None:
        self.state = state
        self.graph = state.graph
        self.reduced_graph = reduced_graph
        self.strategies = strategies
        self.compute = compute
        self._roles = roles_of(state.graph.program)
        self._tables = ReshardingTables(compute)
        self._compute_s = cache(compute.seconds)  # without collectives
        self._lines = cache(resharding_lines)
        self._reduction_lines = cache(self._lines_of_reductions)

    def build(self, prices: ReshardingPrices) -> IntegerProgram:
        """The integer program at these prices of collectives.

        Tables that do not depend on these prices are built once and used again.
        """
        self.prices = prices
        self._lines.cache_clear()
        self._reduction_lines.cache_clear()
        classes = self.reduced_graph.classes
        choices = tuple(self.strategies.of(c.node) for c in classes)
        costs = [
            self._class_cost(each, own)
            for each, own in zip(classes, choices, strict=True)
        ]
        consumers: dict[tuple[int, int], list[ClassEdge]] = defaultdict(list)
        for edge in self.reduced_graph.edges:
            consumers[edge.producer, edge.result].append(edge)
        shared: list[SharedValue] = []
        pairs: list[PairCost] = []
        for (producer, result), edges in consumers.items():
            _, dims = classes[producer].node.outs[result]
            produced = self._tables.produced(choices[producer], dims)
            if len(edges) == 1:
                pairs.append(self._pair(producer, produced, edges[0], choices))
                continue
            expected = [self._expected(e, choices[e.consumer]) for e in edges]
            kept = self._tables.kept(produced, tuple(expected))
            variable = len(choices) + len(shared)
            shared.append(SharedValue(producer, result, kept.by_choice))
            costs.append(np.zeros(len(kept.by_choice)))
            pairs.append(self._shared_pair(shared[-1], variable, produced, kept))
            pairs += [self._pair(variable, kept, e, choices) for e in edges]
        result_bytes = tuple(
            tuple(self._result_bytes(each.node, own))
            for each, own in zip(classes, choices, strict=True)
        )
        return IntegerProgram(
            self.reduced_graph,
            choices,
            tuple(shared),
            tuple(costs),
            tuple(pairs),
            result_bytes,
        )

    # -- one class ------------------------------------------------------------------

    def _class_cost(self, each: NodeClass, choices: StrategySet) -> Floats:
        seconds = self._compute_s(each.node, choices)
        return each.runs * (seconds + self._collective_s(each.node, choices))

    def _collective_s(self, node: Node, choices: StrategySet) -> Floats:
        """Seconds of a node's own collectives and reductions, per strategy."""
        seconds = np.zeros(len(choices))
        if node.rule is not None and node.rule.expand is not None:
            for index, strategy in enumerate(choices):
                for kind, axes, num_bytes in self.compute.collectives(node, strategy):
                    cost = self.prices.seconds(kind, axes, num_bytes, Role.OTHER)
                    seconds[index] += cost
        if not any(strategy.reductions for strategy in choices):
            return seconds
        role = self._role(node.outs[0][0])
        for number, dims in node.outs:
            lines = self._reduction_lines(choices, dims, role)
            seconds += lines[:, 0] + self._sent_bytes(number) * lines[:, 1]
        return seconds

    def _lines_of_reductions(
        self, choices: StrategySet, dims: Dims, role: Role
    ) -> Floats:
        return np.array([self._reduction_line(each, dims, role) for each in choices])

    def _reduction_line(
        self, strategy: Strategy, dims: Dims, role: Role
    ) -> tuple[float, float]:
        """Latency, and seconds per byte of the whole value, of a reduction.

        The reduction is that of a partial result under one strategy.
        """
        if not strategy.reductions:
            return 0.0, 0.0
        share = 1 / self.compute.parts(strategy.dim_axes(dims))
        start = per_byte = 0.0
        ends = [(dim, "reduce_scatter") for dim in range(len(dims))]
        for end, kind in (*ends, (ALL_REDUCE, "all_reduce")):
            axes = tuple(axis for axis, its in strategy.reductions if its == end)
            if axes:
                first, each = self.prices.line(kind, axes, role)
                start, per_byte = start + first, per_byte + share * each
                share /= self.state.mesh.size(axes)
        return start, per_byte

    def _role(self, number: int) -> Role:
        return self._roles.get(self.graph.values[number], Role.OTHER)

    def _num_bytes(self, number: int) -> int:
        """Bytes of a value in memory; 0 if its readers compute it."""
        return self.compute.prices.layouts.num_bytes(self.graph.values[number])

    def _sent_bytes(self, number: int) -> int:
        """Bytes of a value in a collective, and of the copy that this makes."""
        return self.compute.prices.layouts.sent_bytes(self.graph.values[number])

    def _result_bytes(self, node: Node, choices: StrategySet) -> Iterator[Floats]:
        for number, dims in node.outs:
            produced = self._tables.produced(choices, dims)
            yield self._num_bytes(number) / self._tables.parts(produced)
        if node.rule is not None and node.rule.reductions:
            number, dims = node.outs[0]
            parts = np.array([self.compute.parts(s.dim_axes(dims)) for s in choices])
            is_scattered = [any(end >= 0 for _, end in s.reductions) for s in choices]
            yield np.where(is_scattered, self._sent_bytes(number) / parts, 0.0)

    # -- two variables ----------------------------------------------------------------

    def _expected(self, edge: ClassEdge, choices: StrategySet) -> OperandShardings:
        """The shardings in which a node class reads an operand, one per strategy."""
        node = self.reduced_graph.classes[edge.consumer].node
        dims = node.ins[edge.operand][1]
        partial = self.strategies.partial_operands(node)
        may_be_partial = bool(partial) and node.operand_places[edge.operand] in partial
        return self._tables.expected(choices, dims, may_be_partial, len(partial) > 1)

    def _pair(
        self,
        first: int,
        sources: ResultShardings,
        edge: ClassEdge,
        choices: Sequence[StrategySet],
    ) -> PairCost:
        """The pair cost of variable `first`, which has a value, and its reader.

        sources: shardings of the value, one per choice of `first`.
        edge: the operand by which a node class reads the value.
        """
        expected = self._expected(edge, choices[edge.consumer])
        number = self.reduced_graph.classes[edge.producer].node.outs[edge.result][0]
        seconds, share = self._resharding(sources, expected, number)
        key = edge.producer, edge.result, edge.consumer, edge.operand
        num_bytes = self._sent_bytes(number)
        return PairCost(
            first, edge.consumer, edge.runs * seconds, key, num_bytes, share
        )

    def _shared_pair(
        self,
        shared: SharedValue,
        variable: int,
        produced: ResultShardings,
        kept: ResultShardings,
    ) -> PairCost:
        """The pair cost of a shared value's producer and the value's own variable.

        produced, kept: shardings of the value, one per choice of the producer and of
            the variable.
        """
        each = self.reduced_graph.classes[shared.producer]
        number = each.node.outs[shared.result][0]
        targets = self._tables.as_expected(kept)
        seconds, _ = self._resharding(produced, targets, number)
        share = self._tables.copy_shares(produced, kept)
        key, num_bytes = (shared.producer, shared.result), self._sent_bytes(number)
        seconds = each.runs * seconds
        return PairCost(shared.producer, variable, seconds, key, num_bytes, share)

    def _resharding(
        self,
        sources: ResultShardings,
        targets: OperandShardings,
        number: int,
    ) -> tuple[Floats, Floats]:
        """Two tables over pairs of shardings: seconds to reshard, and copy shares.

        The copy share is the part of the whole value that the resharded copy takes on a
        device.
        number: number of the value in the graph.
        """
        role = self._role(number)
        start, per_byte, copied = self._lines(self.prices, sources, targets, role)
        return start + self._sent_bytes(number) * per_byte, copied
