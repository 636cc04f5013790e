"""Enumeration of the strategies of each node, given the decisions of a state.

A strategy is one way to partition the node (an op or input). A state has the decisions
of earlier tactics, which every strategy keeps.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, permutations, product

from meshwright.partitioner.propagate import (
    Cause,
    Node,
    State,
    SumRoutes,
    user_axes,
    why_not,
)
from meshwright.planner.strategies.strategy import (
    ALL_REDUCE,
    KEEP_PARTIAL,
    Strategy,
    StrategySet,
)
from meshwright.planner.strategies.symmetry import scattered_dims

type _FactorAxes = dict[int, tuple[str, ...]]
"""For each factor that is split, the sub-axes that split it, major to minor."""

_AUTO = Cause("tactic", "auto")

_MAX_EXHAUSTIVE_AXES = 2
"""Largest number of mesh axes for which all strategies are enumerated.

Up to this many axes, each order of axes and each combination of ways to reduce partial
results is a strategy. With three axes a matrix product would have 2,057 strategies; it
has 419 if axes of a dim keep their order and all partial results of a node are reduced
in the same way.
"""


class Strategies:
    """All strategies of each node of a graph that keep a state's decisions.

    free: the sub-axes (parts of mesh axes) that strategies may use.
    """

    def __init__(self, state: State, free: Sequence[str]) -> None:
        self.state = state
        self.free = frozenset(free)
        self._mesh_axes = tuple(_by_mesh_axis(state.size))
        self._is_exhaustive = len(self._mesh_axes) <= _MAX_EXHAUSTIVE_AXES
        self._routes = SumRoutes(state.graph)
        self._can_be_partial: dict[int, bool] = {}
        self._sets: dict[object, StrategySet] = {}

    def of(self, node: Node) -> StrategySet:
        """The strategies of a node; the first adds nothing to the state's decisions.

        A strategy is one way to partition the node.
        """
        key = self._key(node)
        if key not in self._sets:
            strategies = tuple(dict.fromkeys(self._enumerate(node)))
            self._sets[key] = StrategySet(len(self._sets), strategies)
        return self._sets[key]

    def _key(self, node: Node) -> object:
        """A key of everything that a node's strategies depend on.

        Nodes with equal keys have equal strategies.
        """
        state = self.state
        op = node.sizes if node.signature is None else node.signature
        decided = tuple(state.axes_of[node.index].items())
        ranks = tuple(len(dims) for _, dims in node.outs)
        partial = self._may_keep_partial(node), bool(self.partial_operands(node))
        scattered = scattered_dims(state, node)
        return op, ranks, decided, scattered, state.blocked[node.index], partial

    def _enumerate(self, node: Node) -> Iterator[Strategy]:
        # A copy, since `_splits` assigns to it.
        decided = dict(self.state.axes_of[node.index])
        for split, partial in self._splits(node, 0):
            orders = _orders(split, decided) if self._is_exhaustive else (split,)
            for axes in orders:
                for reductions in self._reductions(node, axes, partial):
                    yield Strategy(tuple(sorted(axes.items())), partial, reductions)

    def _splits(
        self, node: Node, position: int
    ) -> Iterator[tuple[_FactorAxes, tuple[str, ...]]]:
        """Each way in which a node can use the mesh axes from `position` on.

        It is given as the factors that are split, and the axes along which operands are
        partial. A mesh axis either splits one factor with all its sub-axes, or operands
        are partial along it, or the node does not use it.
        """
        state = self.state
        if position == len(self._mesh_axes):
            yield {f: a for f, a in state.axes_of[node.index].items() if a}, ()
            return
        sub_axes = self._mesh_axes[position]
        yield from self._splits(node, position + 1)
        taken = state.factor_of[node.index].keys() | state.blocked[node.index]
        if not taken.isdisjoint(sub_axes):
            return
        if self.partial_operands(node):
            for split, partial in self._splits(node, position + 1):
                yield split, (*sub_axes, *partial)
        for factor in range(len(node.sizes)) if self.free.issuperset(sub_axes) else ():
            mark = state.mark()
            if self._assign(node, sub_axes, factor):
                yield from self._splits(node, position + 1)
            state.rollback(mark)

    def _assign(self, node: Node, sub_axes: Sequence[str], factor: int) -> bool:
        """Split a factor by sub-axes in order; True if all of them could be used.

        If a sub-axis does not divide the factor, it splits the next minor factor of the
        same dim.
        """
        for number, axis in enumerate(sub_axes):
            while why_not(self.state, node, axis, factor) is not None:
                after = _next_factor(node, factor) if number else None
                if after is None:
                    return False
                factor = after
            self.state.assign(node, axis, factor, _AUTO)
        return True

    def _reductions(
        self, node: Node, axes: _FactorAxes, partial: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, int], ...]]:
        """Each combination of ways to reduce a partial result, one way per axis."""
        rule = node.rule
        if rule is None:
            yield ()
            return
        opened = [a for f in sorted(rule.reductions) for a in axes.get(f, ())]
        opened = [a for a in self.state.size if a in opened or a in partial]
        is_sum = bool(partial) or rule.monoid == "sum"
        groups = tuple(_by_mesh_axis(opened))
        ends = (self._ends(node, sub_axes[0], is_sum) for sub_axes in groups)
        for chosen in product(*ends):
            reductions = tuple(
                (axis, end)
                for sub_axes, end in zip(groups, chosen, strict=True)
                for axis in sub_axes
            )
            is_wanted = self._is_exhaustive or self._is_uniform(node, reductions)
            if is_wanted and self._divides(node, axes, reductions):
                yield reductions

    def _is_uniform(self, node: Node, reductions: tuple[tuple[str, int], ...]) -> bool:
        """Whether a partial result is reduced in the same way along all axes.

        Axes for which the state has decided are left out.
        """
        value = node.outs[0][0] if node.outs else -1
        decided = self.state.scattered
        ends = {end for axis, end in reductions if (value, axis) not in decided}
        return len(ends) <= 1

    def _ends(self, node: Node, axis: str, is_sum: bool) -> tuple[int, ...]:
        value, dims = node.outs[0] if node.outs else (-1, ())
        if not is_sum or not _has_one_result(node):
            return (ALL_REDUCE,)
        decided = self.state.scattered.get((value, axis))
        if decided is not None:
            return (decided,)
        may_keep = self._may_keep_partial(node)
        ends = (ALL_REDUCE, KEEP_PARTIAL) if may_keep else (ALL_REDUCE,)
        return ends if axis not in self.free else (*ends, *range(len(dims)))

    def _may_keep_partial(self, node: Node) -> bool:
        """Whether readers of a node's result may take it as partial sums."""
        return _has_one_result(node) and self._routes.is_cheap(node.outs[0][0])

    def partial_operands(self, node: Node) -> frozenset[int]:
        """The operands that may be partial sums together; empty if none may.

        A product is linear in either operand, but not in both at once. The first set of
        operands is returned in which the op is linear and of which one may be partial.
        """
        for group, values in _linear_groups(node):
            if any(map(self._may_be_partial, values)):
                return group
        return frozenset()

    def _may_be_partial(self, value: int) -> bool:
        """Whether a value may be partial sums of an op upstream of it.

        Only cheap linear ops may lie in between. The search is iterative, since a sum
        over layers is a chain longer than Python's recursion limit.
        """
        known, graph = self._can_be_partial, self.state.graph
        waiting, seen = [value], set[int]()
        while value not in known:
            last = waiting[-1]
            node = graph.nodes[graph.producer[last]]
            operands = [v for _, values in _linear_groups(node) for v in values]
            if last in seen:
                known[last] = any(known.get(v, False) for v in operands)
            elif not self._routes.is_cheap(last):
                known[last] = False
            elif node.rule is not None and node.rule.reductions:
                known[last] = True
            else:
                seen.add(last)
                waiting += [v for v in operands if v not in known and v not in seen]
                continue
            waiting.pop()
        return known[value]

    def _divides(
        self, node: Node, axes: _FactorAxes, reductions: tuple[tuple[str, int], ...]
    ) -> bool:
        """Whether each reduce-scatter's axis divides the local part of its dim."""
        scattered = [(axis, end) for axis, end in reductions if end >= 0]
        if not scattered:
            return True
        value, dims = node.outs[0]
        shape = list(self.state.graph.values[value].shape)
        for dim, factors in enumerate(dims):
            for factor in factors:
                shape[dim] //= self.state.mesh.size(axes.get(factor, ()))
        for axis, dim in scattered:
            if shape[dim] % self.state.size[axis]:
                return False
            shape[dim] //= self.state.size[axis]
        return True


def _linear_groups(node: Node) -> Iterator[tuple[frozenset[int], list[int]]]:
    """Each set of operands in which a node is jointly linear, with their values."""
    if node.rule is None or not node.rule.linear or not _has_one_result(node):
        return
    numbered = list(zip(node.operand_places, node.ins, strict=True))
    for group in node.rule.linear:
        yield group, [value for place, (value, _) in numbered if place in group]


def _by_mesh_axis(sub_axes: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """The sub-axes, grouped into one tuple for each axis of the user's mesh."""
    for _, run in groupby(sub_axes, key=lambda axis: user_axes((axis,))):
        yield tuple(run)


def _next_factor(node: Node, factor: int) -> int | None:
    """The next minor factor in a dim that is a product of factors.

    `None` if `factor` is the last one of its dim.
    """
    for _, dims in (*node.ins, *node.outs):
        for factors in dims:
            if factor in factors[:-1]:
                return factors[factors.index(factor) + 1]
    return None


def _has_one_result(node: Node) -> bool:
    return len(node.outs) == 1


def _orders(split: _FactorAxes, decided: _FactorAxes) -> Iterator[_FactorAxes]:
    """The split, with the axes of each factor in each possible order.

    Axes that are already decided stay first.
    """
    factors = list(split)
    orders_of: list[list[tuple[str, ...]]] = []
    for factor in factors:
        first = decided.get(factor, ())
        rest = split[factor][len(first) :]
        orders = permutations(_by_mesh_axis(rest))
        orders_of.append([(*first, *chain.from_iterable(order)) for order in orders])
    for chosen in product(*orders_of):
        yield dict(zip(factors, chosen, strict=True))
