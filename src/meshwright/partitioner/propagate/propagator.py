"""Propagation of shardings: one axis at a time, forward and backward, to a fixed point.

Each node (op, input, or array that enters or leaves a loop) has factors, which are dims
that are sharded together. Forward: the axis shards the factor of a node that is sharded
in its operands. Backward: otherwise, it shards the factor that consumers of the results
request. When a node is sharded, it requests the same sharding of its unsharded operands
from their producers, which costs nothing. If two different factors are claimed for one
axis at once, that is a conflict: it is recorded, and the axis does not shard the node.
No decision is undone, as in PartIR (Alabed et al., ASPLOS 2025).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from meshwright.partitioner.propagate.graph import Node
from meshwright.partitioner.propagate.legality import why_not
from meshwright.partitioner.propagate.partial_sums import PartialSums
from meshwright.partitioner.propagate.state import Cause, Conflict, State


class Propagator:
    """Propagates shardings through the graph of a `State` and writes them there."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.graph = state.graph
        self.partial_sums = PartialSums(state, may_cut=True)

    def cut(self, node: Node, axis: str, factor: int, tactic: str = "") -> str | None:
        """Shard one factor of a node along an axis and propagate.

        Returns `None`, or the reason if that is not legal; then nothing changes.
        """
        refusal = why_not(self.state, node, axis, factor)
        if refusal is None:
            self.cut_all([(node, factor)], axis, tactic)
        return refusal

    def cut_all(
        self, seeds: Iterable[tuple[Node, int]], axis: str, tactic: str = ""
    ) -> None:
        """Shard several (node, factor) pairs along one axis, then propagate once.

        Pairs that cannot be sharded are skipped.
        """
        self.state.tactic = tactic
        work = _Work()
        for node, factor in seeds:
            if why_not(self.state, node, axis, factor) is None:
                self._assign(node, axis, factor, Cause("tactic", tactic), work)
        while work:
            self._visit(self.graph.nodes[work.pop()], axis, work)

    def spread(self, node: Node, axis: str) -> None:
        """Propagate a node's sharding that was set without a legality check."""
        work = _Work()
        self._notify(node, axis, self.state.factor_of[node.index][axis], work)
        while work:
            self._visit(self.graph.nodes[work.pop()], axis, work)

    # -- one node -------------------------------------------------------------------

    def _visit(self, node: Node, axis: str, work: _Work) -> None:
        state = self.state
        if axis in state.factor_of[node.index] or axis in state.blocked[node.index]:
            return
        for how in ("forward", "backward"):
            claims = self._claims(node, axis, how)
            if not claims:
                continue
            if how == "backward" and self._scatter_result(node, axis, work):
                return
            if len(claims) > 1:
                side = "operand" if how == "forward" else "result"
                sides = tuple((f, v, side) for f, v in claims.items())
                state.add_conflict(Conflict(node.index, axis, sides, state.tactic))
                return
            ((factor, value),) = claims.items()
            self._assign(node, axis, factor, self._cause(value, axis, how), work)
            return

    def _claims(self, node: Node, axis: str, how: str) -> dict[int, int]:
        """The factors of a node that its neighbours want sharded, with the value.

        how: "forward" for factors that are sharded in operands, "backward" for factors
            that consumers of the results request. A factor that cannot be sharded, for
            example since its size is not a multiple of the axis's, is left out.
        """
        claims: dict[int, int] = {}
        for value, dims in node.ins if how == "forward" else node.outs:
            for dim in self._claimed_dims(value, axis, how):
                factor = self.state.next_factor(node, dims[dim])
                if factor is None or factor in claims:
                    continue
                if why_not(self.state, node, axis, factor) is None:
                    claims[factor] = value
        return claims

    def _claimed_dims(self, value: int, axis: str, how: str) -> tuple[int, ...]:
        if how == "backward":
            return tuple(self.state.requests.get((value, axis), ()))
        dim = self.state.dim_on(value, axis)
        return () if dim is None or dim < 0 else (dim,)

    def _cause(self, value: int, axis: str, how: str) -> Cause:
        """The reason for sharding a node because of a value shared with another node.

        It names the other node, and whether that node produces or consumes the value.
        """
        state, node = self.state, self.graph.producer[value]
        if how == "backward":
            return Cause(how, state.tactic, _first_in(state, value, axis), value)
        if axis in state.factor_of[node]:
            return Cause(how, state.tactic, node, value)
        return Cause("scatter", state.tactic, _first_in(state, value, axis), value)

    def _scatter_result(self, node: Node, axis: str, work: _Work) -> bool:
        """Reduce-scatter a node's partial sums that consumers want sharded.

        Returns whether there is such a result.
        """
        found = False
        for value, _ in node.outs:
            for dim in self.state.requests.get((value, axis), ()):
                if self.partial_sums.is_partial(value, axis):
                    self._scatter(value, axis, dim, work)
                    found = True
        return found

    def _assign(
        self, node: Node, axis: str, factor: int, cause: Cause, work: _Work
    ) -> None:
        self.state.assign(node, axis, factor, cause)
        self._notify(node, axis, factor, work)

    def _notify(self, node: Node, axis: str, factor: int, work: _Work) -> None:
        """Queue the neighbours of a node that an axis has just sharded along a factor.

        Consumers of the results are visited forward. Producers of operands that are not
        sharded get a request.
        """
        for value, dims in node.outs:
            if any(factor in factors for factors in dims):
                work.forward(self.graph.consumers[value])
        for value, dims in node.ins:
            for dim, factors in enumerate(dims):
                if factor in factors and self.state.dim_on(value, axis) in (None, -1):
                    self._want(value, axis, dim, node, work)

    def _want(self, value: int, axis: str, dim: int, node: Node, work: _Work) -> None:
        """Request that a value's producer shard the value on a dim."""
        state = self.state
        producer = self.graph.producer[value]
        if axis not in state.factor_of[producer]:
            state.request(value, axis, dim, node.index)
            work.backward(producer)
        elif (value, axis) not in state.scattered:
            self._scatter(value, axis, dim, work)

    def _scatter(self, value: int, axis: str, dim: int, work: _Work) -> None:
        if (value, axis) in self.state.scattered:
            return
        if self.state.is_available(value, dim, axis):
            self.state.scatter(value, axis, dim)
            work.forward(self.graph.consumers[value])


def _first_in(state: State, value: int, axis: str) -> int | None:
    """The node that first requested that an axis shard a value it reads, if any."""
    return next(iter(state.requests.get((value, axis), {}).values()), None)


class _Work:
    """Queue of nodes to visit, each once: forward visits first, in order of arrival."""

    def __init__(self) -> None:
        self._forward: OrderedDict[int, None] = OrderedDict()
        self._backward: OrderedDict[int, None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._forward or self._backward)

    def forward(self, nodes: Iterable[int]) -> None:
        self._forward.update(dict.fromkeys(nodes))

    def backward(self, node: int) -> None:
        self._backward[node] = None

    def pop(self) -> int:
        return (self._forward or self._backward).popitem(last=False)[0]
