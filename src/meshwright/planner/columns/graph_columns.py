"""The symmetry-reduced graph as a struct of integer arrays, for compiled loops.

A group is a class of equal nodes (ops), treated as one node; each of its results is
treated as one value. An operand of a group has several sources if the members of the
group read values of different groups: the first of several equal layers reads the
input, the others read the layer before.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from meshwright.partitioner.propagate import Node, State, SumRoutes
from meshwright.planner.strategies.symmetry import ReducedGraph
from meshwright.program.ir import Value
from meshwright.search.arrays import Ints, owners_of, starts_of

MOST_OPERANDS = 62
"""Number of operands that fit into the bit mask of a linear set.

A linear set has operands in which an op is jointly linear. An op with more operands
always reduces partial operands before it.
"""


class Columns(NamedTuple):
    """Arrays about A mesh axes, G groups, F factors, V values, and so on.

    A group is a class of equal ops; a factor is a letter of an op's factor rule. O
    counts operands, D dims, and L linear sets (operands in which a group is jointly
    linear). An array whose name ends in `_at` holds the offset of each row's entries in
    other arrays; one more entry at the end holds the total.

    axis_sizes: [A]
    factors_at, values_at, operands_at, linear_at: factors, results, operands and linear
        sets of each group, [G + 1]
    has_products: whether some dim of a group is a product of factors, [G]
    is_sum: whether a group reduces by addition, [G]
    may_read_partial: whether a group may read an operand as a partial sum, [G]
    blocked: for each group, the bit mask of the axes that must not split it, [G]
    sizes, least, is_reduced: for each factor, its extent, the smallest extent of a
        part, and whether its op reduces it, [F]
    makers: the group that computes each value, [V]
    readers_at: entries of each value in `readers`, [V + 1]
    may_stay_partial: whether a value may be a partial sum that readers take as such, [V]
    next_readers, next_operands: the only group that reads a value, and the operand's
        position there, or -1, [V]
    sources_at: entries of each operand in `sources`, [O + 1]
    is_zero: whether an operand is the literal 0, [O]
    ports: offset of the dims of each value, then of each operand, [V + O + 1]
    names_at: entries of each dim in `names`, [D + 1]
    extents: extents of dims, [D]
    names: factors of dims
    sources: values that operands read
    readers: groups that read values
    partial_values: values that may stay partial
    partial_readers: groups that may read a partial sum
    linear_masks: for each linear set, the bit mask of its operands, [L]
    linear_counts: their number, literals included, [L]
    is_whole: whether a literal other than 0 is among them, [L]
    """

    axis_sizes: Ints
    factors_at: Ints
    values_at: Ints
    operands_at: Ints
    linear_at: Ints
    has_products: Ints
    is_sum: Ints
    may_read_partial: Ints
    blocked: Ints
    sizes: Ints
    least: Ints
    is_reduced: Ints
    makers: Ints
    readers_at: Ints
    may_stay_partial: Ints
    next_readers: Ints
    next_operands: Ints
    sources_at: Ints
    is_zero: Ints
    ports: Ints
    names_at: Ints
    extents: Ints
    names: Ints
    sources: Ints
    readers: Ints
    partial_values: Ints
    partial_readers: Ints
    linear_masks: Ints
    linear_counts: Ints
    is_whole: Ints


def columns_of(state: State, reduced: ReducedGraph) -> Columns:
    """The integer arrays (`Columns`) of a state's symmetry-reduced graph."""
    return _Writer(state, reduced).write()


type Linear = tuple[int, int, bool]


class _Writer:
    """Writes the tables of `Columns`; values and operands are numbered by group."""

    def __init__(self, state: State, reduced: ReducedGraph) -> None:
        self.state = state
        self.graph = state.graph
        self.nodes = [group.node for group in reduced.classes]
        self.reduced_graph = reduced
        self.routes = SumRoutes(state.graph)
        self.values_at = starts_of([len(node.outs) for node in self.nodes])
        self.operands_at = starts_of([len(node.ins) for node in self.nodes])
        self.results = [out for node in self.nodes for out in node.outs]
        self.makers = owners_of(self.values_at).tolist()
        self.output_values = {
            v for v in self.graph.program.outputs if isinstance(v, Value)
        }

    def write(self) -> Columns:
        nodes, results = self.nodes, self.results
        ports = [*results, *(port for node in nodes for port in node.ins)]
        dims = [factors for _, port in ports for factors in port]
        sources, readers = self._edges()
        linear = [list(self._linear(node)) for node in nodes]
        partial_readers, partial_values = self._find_partial(linear, sources)
        operands = [self.graph.values[v] for node in nodes for v, _ in node.ins]
        factors = [each for node in nodes for each in _factors(node)]
        sets = [each for own in linear for each in own]
        following = [
            self._only_reader(nodes[maker], value)
            for maker, (value, _) in zip(self.makers, results, strict=True)
        ]
        rules = [node.rule for node in nodes]
        return Columns(
            axis_sizes=ints(self.state.size.values()),
            factors_at=starts_of([len(node.sizes) for node in nodes]),
            values_at=self.values_at,
            operands_at=self.operands_at,
            linear_at=starts_of([*map(len, linear)]),
            has_products=ints(node.has_products for node in nodes),
            is_sum=ints(rule is not None and rule.monoid == "sum" for rule in rules),
            may_read_partial=ints(g in partial_readers for g in range(len(nodes))),
            blocked=ints(map(self._blocked_axes, nodes)),
            sizes=ints(size for size, _, _ in factors),
            least=ints(least for _, least, _ in factors),
            is_reduced=ints(is_reduced for _, _, is_reduced in factors),
            makers=ints(self.makers),
            readers_at=starts_of([*map(len, readers)]),
            may_stay_partial=ints(v in partial_values for v in range(len(results))),
            next_readers=ints(reader for reader, _ in following),
            next_operands=ints(operand for _, operand in following),
            sources_at=starts_of([*map(len, sources)]),
            is_zero=ints(map(self.routes.is_zero, operands)),
            ports=starts_of([len(port) for _, port in ports]),
            names_at=starts_of([*map(len, dims)]),
            extents=ints(n for v, _ in ports for n in self.graph.values[v].shape),
            names=ints(f for factors in dims for f in factors),
            sources=ints(v for own in sources for v in own),
            readers=ints(g for own in readers for g in own),
            partial_values=ints(sorted(partial_values)),
            partial_readers=ints(sorted(partial_readers)),
            linear_masks=ints(mask for mask, _, _ in sets),
            linear_counts=ints(count for _, count, _ in sets),
            is_whole=ints(is_whole for _, _, is_whole in sets),
        )

    def _blocked_axes(self, node: Node) -> int:
        """The bit mask of the axes that must not split a node."""
        blocked = self.state.blocked[node.index]
        return sum((axis in blocked) << i for i, axis in enumerate(self.state.size))

    def _find_partial(
        self, linear: list[list[Linear]], sources: list[list[int]]
    ) -> tuple[set[int], set[int]]:
        """Groups that may read partial sums, and values that may stay partial sums.

        A group is a class of equal ops.
        """
        sums = {g for g, n in enumerate(self.nodes) if n.rule and n.rule.reductions}
        cheap = [self.routes.is_cheap(number) for number, _ in self.results]
        partial_readers: set[int] = set()
        partial_values: set[int] = set()
        size = -1
        while size < len(partial_values) + len(partial_readers):
            size = len(partial_values) + len(partial_readers)
            for value, maker in enumerate(self.makers):
                if cheap[value] and (maker in sums or maker in partial_readers):
                    partial_values.add(value)
            for group, sets in enumerate(linear):
                first, last = self.operands_at[group : group + 2]
                read = (v for own in sources[first:last] for v in own)
                if sets and any(v in partial_values for v in read):
                    partial_readers.add(group)
        return partial_readers, partial_values

    def _edges(self) -> tuple[list[list[int]], list[list[int]]]:
        """The values that each operand reads, and the groups that read each value.

        Both are sorted lists.
        """
        sources: list[set[int]] = [set() for _ in range(self.operands_at[-1])]
        readers: list[set[int]] = [set() for _ in self.results]
        for edge in self.reduced_graph.edges:
            value = int(self.values_at[edge.producer]) + edge.result
            sources[self.operands_at[edge.consumer] + edge.operand].add(value)
            readers[value].add(edge.consumer)
        return [sorted(own) for own in sources], [sorted(own) for own in readers]

    def _linear(self, node: Node) -> Iterator[Linear]:
        """The sets of operands in which a node is jointly linear.

        Each set is given by its bit mask, its size, and whether it contains a literal
        other than 0.
        """
        op, rule = node.op, node.rule
        if op is None or rule is None or len(node.ins) > MOST_OPERANDS:
            return
        places = node.operand_places
        for group in rule.linear:
            mask = sum(1 << i for i, place in enumerate(places) if place in group)
            others = [op.operands[p] for p in group if p not in places]
            is_whole = not all(self.routes.is_zero(atom) for atom in others)
            yield mask, len(group), is_whole

    def _only_reader(self, maker: Node, value: int) -> tuple[int, int]:
        """The only group that reads a value, and the operand's position in it.

        (-1, -1) if the value is an output, or is read more than once.
        """
        readers = self.graph.consumers[value]
        is_output = self.graph.values[value] in self.output_values
        if len(maker.outs) != 1 or len(readers) != 1 or is_output:
            return -1, -1
        reader = self.graph.nodes[readers[0]]
        numbers = [number for number, _ in reader.ins]
        if reader.op is None or reader.wire or numbers.count(value) != 1:
            return -1, -1
        return self.reduced_graph.class_of[reader.index], numbers.index(value)


def _factors(node: Node) -> Iterator[tuple[int, int, int]]:
    """Extent of each factor, its least extent in a part, and whether it is reduced."""
    least = (node.rule.least or {}) if node.rule else {}
    reductions = node.rule.reductions if node.rule else ()
    for factor, size in enumerate(node.sizes):
        yield size, least.get(factor, 1), factor in reductions


def ints(numbers: Iterable[int]) -> Ints:
    """An array of integers; booleans become 0 and 1."""
    return np.array(list(numbers), np.int64)
