"""The folded graph in columns: flat arrays of integers that compiled loops walk.

A group stands where the graph has a node, a result of a group where it has a value. A
group whose members read values of several groups, as the first layer and the others do,
reads all of them, as a loop's wire reads what goes in and what comes round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.partitioner.propagate import Carrier, Graph, Node, State
from meshwright.planner.prices.symmetry import ReducedGraph
from meshwright.program.ir import Value
from meshwright.search.arrays import Ints

type Cells = NDArray[np.int16]
"""A state: for each row and axis a number; `Rows` says which rows are what."""

MOST_OPERANDS = 62
"""So many fit into the mask of a linear group; what reads more carries no sums."""


class Columns(NamedTuple):
    """A axes, G groups, F factors, V values, O operands, D dims, L linear sets.

    One row for each; what ends in `_AT` says where its entries in another table start,
    and a last row where the last one's end.

    axis_sizes: [A]
    groups: [G + 1, 8], FACTORS_AT, VALUES_AT, OPERANDS_AT, LINEAR_AT, HAS_PRODUCTS,
        IS_SUM, MAY_CARRY: some operand may arrive as addends, BLOCKED: the axes, as
        bits, along which a group stays whole
    factors: [F, 3], SIZE, LEAST: the smallest part, IS_REDUCED: summed (or so) over
    values: [V + 1, 5], MAKER: group, READERS_AT, TRAVELS: can be addends of a sum, and
        may be handed on so, NEXT_READER, NEXT_OPERAND: the only reader, and as what it
        reads it, or -1
    operands: [O + 1, 2], SOURCES_AT, IS_ZERO
    ports: where the dims of each value, then of each operand start, [V + O + 1]
    dims: [D + 1, 2], NAMES_AT, EXTENT
    names: factors of dims. sources: values that operands read. readers: groups
    travellers, carriers: values that travel, groups that may carry
    linear: [L, 3], MASK: operands, as bits, in which together a group is linear, COUNT:
        how many, numbers included, IS_WHOLE: whether a number other than 0 is among them
    """

    axis_sizes: Ints
    groups: Ints
    factors: Ints
    values: Ints
    operands: Ints
    ports: Ints
    dims: Ints
    names: Ints
    sources: Ints
    readers: Ints
    travellers: Ints
    carriers: Ints
    linear: Ints


FACTORS_AT, VALUES_AT, OPERANDS_AT, LINEAR_AT = range(4)
HAS_PRODUCTS, IS_SUM, MAY_CARRY, BLOCKED = range(4, 8)
SIZE, LEAST, IS_REDUCED = range(3)
MAKER, READERS_AT, TRAVELS, NEXT_READER, NEXT_OPERAND = range(5)
SOURCES_AT, IS_ZERO = range(2)
NAMES_AT, EXTENT = range(2)
MASK, COUNT, IS_WHOLE = range(3)


def columns_of(state: State, fold: ReducedGraph) -> Columns:
    """The columns of a fold of a state's graph."""
    return _Writer(state, fold).write()


type Linear = tuple[int, int, bool]


class _Writer:
    """Numbers values and operands in the order of groups."""

    def __init__(self, state: State, fold: ReducedGraph) -> None:
        self.state = state
        self.graph = state.graph
        self.nodes = [group.node for group in fold.classes]
        self.reduced_graph = fold
        self.carrier = Carrier(state)
        self.values_at = starts_of(len(node.outs) for node in self.nodes)
        self.operands_at = starts_of(len(node.ins) for node in self.nodes)
        self.made = [out for node in self.nodes for out in node.outs]
        self.lasting = {v for v in self.graph.program.outputs if isinstance(v, Value)}

    def write(self) -> Columns:
        nodes, made = self.nodes, self.made
        ports = [*made, *(port for node in nodes for port in node.ins)]
        dims = [factors for _, port in ports for factors in port]
        sources, readers = self._edges()
        linear = [list(self._linear(node)) for node in nodes]
        carriers, travellers = self._travels(linear, sources)
        operands = [self.graph.values[v] for node in nodes for v, _ in node.ins]
        factors = [each for node in nodes for each in _factors(node)]
        return Columns(
            axis_sizes=ints(self.state.size.values()),
            groups=self._groups(linear, carriers),
            factors=ints(x for each in factors for x in each).reshape(-1, 3),
            values=self._values(readers, travellers),
            operands=_table(
                starts_of(map(len, sources)),
                ints(self.carrier.is_zero(value) for value in operands),
            ),
            ports=starts_of(len(port) for _, port in ports),
            dims=_table(
                starts_of(len(factors) for factors in dims),
                ints(n for v, _ in ports for n in self.graph.values[v].shape),
            ),
            names=ints(f for factors in dims for f in factors),
            sources=ints(v for own in sources for v in own),
            readers=ints(g for own in readers for g in own),
            travellers=ints(sorted(travellers)),
            carriers=ints(sorted(carriers)),
            linear=ints(x for own in linear for each in own for x in each).reshape(
                -1, 3
            ),
        )

    def _groups(self, linear: list[list[Linear]], carriers: set[int]) -> Ints:
        nodes, axes = self.nodes, tuple(self.state.size)
        rules = [node.rule for node in nodes]
        blocked = [self.state.blocked[node.index] for node in nodes]
        return _table(
            starts_of(len(node.sizes) for node in nodes),
            self.values_at,
            self.operands_at,
            starts_of(map(len, linear)),
            ints(node.has_products for node in nodes),
            ints(rule is not None and rule.monoid == "sum" for rule in rules),
            ints(group in carriers for group in range(len(nodes))),
            ints(sum((a in own) << i for i, a in enumerate(axes)) for own in blocked),
        )

    def _values(self, readers: list[list[int]], travellers: set[int]) -> Ints:
        following = [self._next(*place) for place in self._places()]
        return _table(
            ints(group for group, _ in self._places()),
            starts_of(map(len, readers)),
            ints(value in travellers for value in range(len(self.made))),
            ints(reader for reader, _ in following),
            ints(operand for _, operand in following),
        )

    def _travels(
        self, linear: list[list[Linear]], sources: list[list[int]]
    ) -> tuple[set[int], set[int]]:
        """Groups that may carry addends, and values that may be some and travel."""
        cheap = {v for v, (n, _) in enumerate(self.made) if self.carrier.is_cheap(n)}
        carriers: set[int] = set()
        travellers: set[int] = set()
        size = -1
        while size < len(travellers) + len(carriers):
            size = len(travellers) + len(carriers)
            for value, (group, _) in enumerate(self._places()):
                rule = self.nodes[group].rule
                is_sum = rule is not None and bool(rule.reductions)
                if value in cheap and (is_sum or group in carriers):
                    travellers.add(value)
            for group, sets in enumerate(linear):
                first, last = self.operands_at[group : group + 2]
                read = (v for own in sources[first:last] for v in own)
                if sets and any(v in travellers for v in read):
                    carriers.add(group)
        return carriers, travellers

    def _places(self) -> Iterator[tuple[int, int]]:
        """(group, result) of each value."""
        for group, node in enumerate(self.nodes):
            for result in range(len(node.outs)):
                yield group, result

    def _edges(self) -> tuple[list[list[int]], list[list[int]]]:
        """Values that each operand reads, and groups that read each value, in order."""
        sources: list[set[int]] = [set() for _ in range(self.operands_at[-1])]
        readers: list[set[int]] = [set() for _ in self.made]
        for edge in self.reduced_graph.edges:
            value = int(self.values_at[edge.producer]) + edge.result
            sources[self.operands_at[edge.consumer] + edge.operand].add(value)
            readers[value].add(edge.consumer)
        return [sorted(own) for own in sources], [sorted(own) for own in readers]

    def _linear(self, node: Node) -> Iterator[Linear]:
        """(mask, size, whether a number other than zero is in it) of each set."""
        op, rule = node.op, node.rule
        if op is None or rule is None or len(node.ins) > MOST_OPERANDS:
            return
        places = [p for p, atom in enumerate(op.operands) if isinstance(atom, Value)]
        for group in rule.linear:
            mask = sum(1 << i for i, place in enumerate(places) if place in group)
            others = [op.operands[p] for p in group if p not in places]
            is_whole = not all(self.carrier.is_zero(atom) for atom in others)
            yield mask, len(group), is_whole

    def _next(self, group: int, result: int) -> tuple[int, int]:
        """The only reader of a value of a group, if it is an op that reads it once."""
        node = self.nodes[group]
        value = node.outs[result][0]
        readers = self.graph.consumers[value]
        is_last = self.graph.values[value] in self.lasting
        if len(node.outs) != 1 or len(readers) != 1 or is_last:
            return -1, -1
        reader = self.graph.nodes[readers[0]]
        numbers = [number for number, _ in reader.ins]
        if reader.op is None or reader.wire or numbers.count(value) != 1:
            return -1, -1
        return self.reduced_graph.class_of[reader.index], numbers.index(value)


def start_cells(columns: Columns, state: State, fold: ReducedGraph) -> Cells:
    """What a state says of the groups; of requests, those of all members."""
    rows, axes = CellRows.of(columns), tuple(state.size)
    cells = np.full((rows.end, len(axes)), -1, np.int16)
    cells[rows.ranks : rows.sums] = 0
    cells[rows.requests : rows.end] = 0
    for group in fold.classes:
        for factor, own in state.axes_of[group.node.index].items():
            for rank, axis in enumerate(own):
                cells[group.index, axes.index(axis)] = factor
                cells[rows.ranks + group.index, axes.index(axis)] = rank
    places = dict(_numbers(state.graph, columns, fold))
    for (value, axis), dim in state.scattered.items():
        cells[rows.sums + places[value], axes.index(axis)] = dim
    for (value, axis), dims in state.requests.items():
        for dim in dims:
            cells[rows.requests + places[value], axes.index(axis)] |= 1 << dim
    cells[rows.total, 0] = (cells[rows.sums : rows.requests] >= 0).sum()
    cells.flags.writeable = False
    return cells


def _numbers(
    graph: Graph, columns: Columns, fold: ReducedGraph
) -> Iterator[tuple[int, int]]:
    """Each value of the graph, and the number of its group's."""
    for node in graph.nodes:
        first = int(columns.groups[fold.class_of[node.index], VALUES_AT])
        for result, (value, _) in enumerate(node.outs):
            yield value, first + result


class CellRows(NamedTuple):
    """Where the rows of a state begin.

    From 0 on the factor of each group that an axis cuts, or -1; from `ranks` its place
    among the axes of that factor; from `sums` the dim on which the sum of a value is
    scattered, or -1; from `requests` the dims, as bits, on which readers want a value
    cut; at `total` how many sums are scattered.
    """

    ranks: int
    sums: int
    requests: int
    total: int
    end: int

    @classmethod
    def of(cls, columns: Columns) -> CellRows:
        """Those of states of these columns."""
        groups, values = len(columns.groups) - 1, len(columns.values) - 1
        total = 2 * groups + 2 * values
        return cls(groups, 2 * groups, 2 * groups + values, total, total + 1)


def _factors(node: Node) -> Iterator[tuple[int, int, int]]:
    """(extent, least part, whether it is reduced) of each factor."""
    least = (node.rule.least or {}) if node.rule else {}
    reductions = node.rule.reductions if node.rule else ()
    for factor, size in enumerate(node.sizes):
        yield size, least.get(factor, 1), factor in reductions


def _table(*columns: Ints) -> Ints:
    """Columns side by side; those that are shorter end with 0."""
    table = np.zeros((max(map(len, columns)), len(columns)), np.int64)
    for position, column in enumerate(columns):
        table[: len(column), position] = column
    return table


def starts_of(lengths: Iterable[int]) -> Ints:
    """Where pieces of these lengths start one behind the other, and the end."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(ints(lengths))])


def ints(numbers: Iterable[int]) -> Ints:
    """A row of numbers, or of answers as 0 and 1."""
    return np.array(list(numbers), np.int64)
