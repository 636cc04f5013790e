"""The decisions of a partitioning: which mesh axis shards which factor of which node.

Nodes are ops, inputs, and arrays that enter or leave loops; factors are dims of a node
that are sharded together. Decisions are only added. A journal of all changes lets a
search roll back a trial.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.machine import Mesh
from meshwright.partitioner.propagate.graph import Graph, Node, Port
from meshwright.partitioner.propagate.sum_routes import SumRoutes
from meshwright.program.ir import Sharding, whole
from meshwright.program.rules.rule import Dims


@dataclass(frozen=True, slots=True)
class Cause:
    """The reason why a node was sharded: a tactic, or a value shared with another node.

    how: "tactic" (`tactic` is its name), "forward" (an operand is sharded), "backward"
        (a consumer wants the result sharded), "scatter" (a consumer wants a partial sum
        sharded).
    node, value: the other node and the shared value.
    """

    how: str
    tactic: str
    node: int | None = None
    value: int | None = None


@dataclass(frozen=True, slots=True)
class AxisLevels:
    """The levels of a mesh axis whose all-reduces run level by level.

    runs: the sub-axes of each level, from the outermost to the innermost.
    least_bytes: values with fewer bytes are all-reduced over all levels at once.
    """

    runs: tuple[tuple[str, ...], ...]
    least_bytes: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two factors of one node that claim the same mesh axis, which then shards neither.

    sides: (factor, value number, "operand" or "result") for each claim.
    """

    node: int
    axis: str
    sides: tuple[tuple[int, int, str], ...]
    tactic: str


def cut_by(axes: Mapping[int, tuple[str, ...]], dims: Dims) -> Sharding:
    """The sharding of a value, given the mesh axes that shard each factor.

    dims: the factors of each dim of the value.
    """
    if not axes:
        return whole(len(dims))
    return Sharding(tuple(tuple(a for f in fs for a in axes.get(f, ())) for fs in dims))


class State:
    """The sharding decisions taken so far on one graph and mesh.

    For each node `factor_of` has the factor that an axis shards, `axes_of` the axes
    that shard a factor, and `blocked` the axes that must not shard the node.

    scattered: by (value, axis), the dim on which a partial sum is reduce-scattered.
    requests: by (value, axis), the dims that consumers want sharded, each with a
        consumer.
    settled: (value, axis) of partial sums that are reduced or reduce-scattered where
        they are computed, whatever their consumers request.
    kept: for a value, the one sharding, by dims, in which it is stored for all
        consumers; a consumer that needs another sharding reshards it for itself. A
        value without an entry is stored in every sharding that some consumer needs.
    levels: axes along which all-reduces are written level by level.
    routes: which ops may read a partial sum before it is reduced.
    overlapped: (node, axes) of nodes whose collectives along these axes are interleaved
        with a matrix product as a loop over parts (looped CollectiveEinsum).
    ahead: (node, axes) of nodes in loops whose gathers run one iteration ahead.
    combined: by axes, the bytes up to which small collectives along them become one.
    """

    def __init__(
        self, graph: Graph, mesh: Mesh, levels: tuple[AxisLevels, ...] = ()
    ) -> None:
        self.graph = graph
        self.mesh = mesh
        self.levels = levels
        self.size = mesh.shape
        self.routes = SumRoutes(graph, bool(mesh.sequential))
        num = len(graph.nodes)
        self.factor_of: list[dict[str, int]] = [{} for _ in range(num)]
        self.axes_of: list[dict[int, tuple[str, ...]]] = [{} for _ in range(num)]
        self.blocked: list[frozenset[str]] = [frozenset()] * num
        self.scattered: dict[tuple[int, str], int] = {}
        self.requests: dict[tuple[int, str], dict[int, int]] = {}
        self.settled: dict[tuple[int, str], bool] = {}
        self.kept: dict[int, tuple[tuple[str, ...], ...]] = {}
        self.overlapped: dict[tuple[int, tuple[str, ...]], bool] = {}
        self.ahead: dict[tuple[int, tuple[str, ...]], bool] = {}
        self.combined: dict[tuple[str, ...], int] = {}
        self.causes: dict[tuple[int, str], Cause] = {}
        self.conflicts: dict[tuple[int, str], Conflict] = {}
        self.tactic = ""
        self.version = 0
        self._journal: list[tuple[Any, object, object]] = []

    # -- reading --------------------------------------------------------------------

    def parts(self, node: Node, factor: int) -> int:
        """Number of parts into which the mesh axes split a factor of a node."""
        parts = 1
        for axis in self.axes_of[node.index].get(factor, ()):
            parts *= self.size[axis]
        return parts

    def next_factor(self, node: Node, factors: tuple[int, ...]) -> int | None:
        """The most major factor of a dim that can be split further, if any can."""
        for factor in factors:
            if self.parts(node, factor) < node.sizes[factor]:
                return factor
        return None

    def dim_on(self, value: int, axis: str) -> int | None:
        """The dim of a value that an axis shards where computed; -1 if partial.

        `None` if the axis does neither.
        """
        producer = self.graph.producer[value]
        factor = self.factor_of[producer].get(axis)
        if factor is None:
            return self.scattered.get((value, axis))
        node = self.graph.nodes[producer]
        for number, dims in node.outs:
            if number == value:
                for dim, factors in enumerate(dims):
                    if factor in factors:
                        return dim
        is_open = node.rule is not None and factor in node.rule.reductions
        return self.scattered.get((value, axis), -1) if is_open else None

    def sharding_at(self, node: Node, port: Port) -> Sharding:
        """The sharding in which a node reads or computes a value, no partial axes."""
        return cut_by(self.axes_of[node.index], port[1])

    def reads(self, node: Node, value: int) -> Iterator[Sharding]:
        """The shardings in which a node reads a value, one for each such operand."""
        return (self.sharding_at(node, port) for port in node.ins if port[0] == value)

    def is_available(self, value: int, dim: int, axis: str) -> bool:
        """Whether a partial value can be reduce-scattered along an axis on `dim`.

        The local extent of the dim must be a multiple of the axis's size.
        """
        shape = self.graph.values[value].shape
        producer = self.graph.nodes[self.graph.producer[value]]
        parts = self.size[axis]
        for number, dims in producer.outs:
            if number == value:
                for factor in dims[dim]:
                    parts *= self.parts(producer, factor)
        for other, size in self.size.items() if self.scattered else ():
            if self.scattered.get((value, other)) == dim:
                parts *= size
        return shape[dim] % parts == 0

    # -- writing --------------------------------------------------------------------

    def assign(self, node: Node, axis: str, factor: int, cause: Cause) -> None:
        """Let an axis shard a node's factor, which `legality.why_not` must allow."""
        index = node.index
        factors, axes, causes = self.factor_of[index], self.axes_of[index], self.causes
        before, key = axes.setdefault(factor, ()), (index, axis)
        # Most changes are made here, so that they are journalled without a call each.
        self.version += 1
        self._journal += (
            (factors, axis, factors.get(axis)),
            (axes, factor, before),
            (causes, key, causes.get(key)),
        )
        factors[axis] = factor
        axes[factor] = (*before, axis)
        causes[key] = cause

    def scatter(self, value: int, axis: str, dim: int) -> None:
        """Reduce-scatter a partial value along `axis` on `dim`, unless it is already."""
        self._add(self.scattered, (value, axis), dim)

    def request(self, value: int, axis: str, dim: int, node: int) -> None:
        """Record that consumer `node` wants a value sharded along an axis on `dim`."""
        self._add(self.requests.setdefault((value, axis), {}), dim, node)

    def retract(self, node: Node, axis: str) -> None:
        """Remove a node's sharding along an axis, for a tactic that replaces it."""
        axes = self.axes_of[node.index]
        factor = self.factor_of[node.index][axis]
        self._set(self.factor_of[node.index], axis, None)
        self._set(axes, factor, tuple(a for a in axes[factor] if a != axis))
        self._set(self.causes, (node.index, axis), None)

    def settle(self, value: int, axis: str) -> None:
        """Fix that a partial sum is reduced or reduce-scattered where computed."""
        self._add(self.settled, (value, axis), True)

    def keep(self, value: int, form: tuple[tuple[str, ...], ...]) -> None:
        """Store a value in one sharding for all consumers, which may reshard it.

        form: for each dim the axes that shard it.
        """
        self._set(self.kept, value, form)

    def overlap(self, node: int, axes: tuple[str, ...]) -> None:
        """Let collectives of a node along `axes` be interleaved with matrix products.

        Lowering writes them as loops over parts (looped CollectiveEinsum).
        """
        self._add(self.overlapped, (node, axes), True)

    def gather_ahead(self, node: int, axes: tuple[str, ...]) -> None:
        """Let gathers of a node in a loop along `axes` run one iteration ahead."""
        self._add(self.ahead, (node, axes), True)

    def combine(self, axes: tuple[str, ...], most_bytes: int) -> None:
        """Let small collectives along `axes` be combined, up to `most_bytes` each."""
        self._set(self.combined, axes, most_bytes)

    def block(self, node: Node, axis: str) -> None:
        """Forbid that an axis shards a node, for all later tactics too."""
        self._note(self.blocked, node.index, self.blocked[node.index])
        self.blocked[node.index] |= {axis}

    def add_conflict(self, conflict: Conflict) -> None:
        """Record a conflict, unless the node already has one along the axis."""
        self._add(self.conflicts, (conflict.node, conflict.axis), conflict)

    def _add(self, table: dict[Any, Any], key: object, entry: object) -> None:
        """Write a new entry of a table, and keep one that is there already."""
        if key not in table:
            self._set(table, key, entry)

    def _set(self, table: dict[Any, Any], key: object, entry: object) -> None:
        """Write an entry of a table, or delete it if `None`, and journal the change."""
        self._note(table, key, table.get(key))
        if entry is None:
            del table[key]
        else:
            table[key] = entry

    def _note(self, table: object, key: object, before: object) -> None:
        self.version += 1
        self._journal.append((table, key, before))

    def mark(self) -> int:
        """The position in the journal of changes, to which `rollback` can return."""
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """Undo all changes since the journal position `mark`."""
        self.version += 1
        while len(self._journal) > mark:
            table, key, before = self._journal.pop()
            if before is None:
                del table[key]
            else:
                table[key] = before
