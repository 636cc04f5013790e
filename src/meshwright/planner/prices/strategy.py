"""What one node may choose: which factor each axis cuts, and where sums are taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, permutations, product

from meshwright.partitioner.propagate import Carrier, Cause, Node, State, user_axes
from meshwright.program.ir import Value
from meshwright.program.rules.rule import Dims

ALL_REDUCE, KEEP_PARTIAL = -1, -2
"""What becomes of a partial sum: taken on every device, or handed on as it is. A number
from 0 on is the dim of the result along which it is scattered."""

Cuts = tuple[tuple[str, ...], ...]
"""Per dim of a value the axes that cut it, major to minor."""

_AUTO = Cause("tactic", "auto")


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to cut a node.

    axes: per factor that is cut, the axes, major to minor. carries: axes along which
    operands arrive as addends. sums: per axis along which the result is a sum, what
    becomes of it.
    """

    axes: tuple[tuple[int, tuple[str, ...]], ...] = ()
    partial_inputs: tuple[str, ...] = ()
    reductions: tuple[tuple[str, int], ...] = ()

    def cuts(self, dims: Dims) -> Cuts:
        """How a value with these factors is cut."""
        if not self.axes:
            return ((),) * len(dims)
        axes = dict(self.axes)
        return tuple(
            [
                axes.get(fs[0], ())
                if len(fs) == 1  # nearly always, and this is asked very often
                else tuple([a for f in fs for a in axes.get(f, ())])
                for fs in dims
            ]
        )

    def stored(self, dims: Dims) -> Cuts:
        """How a result is stored, once its sums are scattered."""
        cuts = list(self.cuts(dims))
        for axis, what in self.reductions:
            if 0 <= what < len(cuts):
                cuts[what] = (*cuts[what], axis)
        return tuple(cuts)

    @property
    def left(self) -> frozenset[str]:
        """Axes along which the result is handed on as addends."""
        return frozenset(axis for axis, what in self.reductions if what == KEEP_PARTIAL)


_MOST_AXES = 2
"""Of a mesh up to which every order of axes and every mix of ends of sums is a strategy.
With three that is 2,057 of one product, and 419 with the axes of a dim in order and all
sums of a node taken alike."""


class Strategies:
    """All strategies of nodes under a state whose decisions stand.

    free: the axes that may be decided now.
    """

    def __init__(self, state: State, free: Sequence[str]) -> None:
        self.state = state
        self.free = frozenset(free)
        self._groups = tuple(_by_axis(state.size))
        self._is_full = len(self._groups) <= _MOST_AXES
        self._carrier = Carrier(state)
        self._may_leave: dict[int, bool] = {}
        self._known: dict[object, tuple[Strategy, ...]] = {}

    def of(self, node: Node) -> tuple[Strategy, ...]:
        """Those of one node, the one that decides nothing more first."""
        key = self._key(node)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = tuple(dict.fromkeys(self._find(node)))
        return known

    def _key(self, node: Node) -> object:
        state = self.state
        scattered = tuple(
            (axis, state.scattered[value, axis])
            for value, _ in node.outs
            for axis in state.size
            if (value, axis) in state.scattered
        )
        rule = node.sizes if node.rule is None else id(node.rule)
        decided = tuple(state.axes_of[node.index].items())
        ranks = tuple(len(dims) for _, dims in node.outs)
        leaves = self._leaves(node), self._may_carry(node)
        return rule, ranks, decided, scattered, state.blocked[node.index], leaves

    def _find(self, node: Node) -> Iterator[Strategy]:
        decided = dict(self.state.axes_of[node.index])  # trials come and go below
        for cut, carried in self._cuts(node, 0):
            for axes in _orders(cut, decided) if self._is_full else (cut,):
                for sums in self._sums(node, axes, carried):
                    yield Strategy(tuple(sorted(axes.items())), carried, sums)

    def _cuts(
        self, node: Node, position: int
    ) -> Iterator[tuple[dict[int, tuple[str, ...]], tuple[str, ...]]]:
        """Each way to give the axes from `position` on a factor, or to carry sums.

        The units of an axis go together.
        """
        state = self.state
        if position == len(self._groups):
            yield {f: a for f, a in state.axes_of[node.index].items() if a}, ()
            return
        units = self._groups[position]
        yield from self._cuts(node, position + 1)
        taken = state.factor_of[node.index].keys() | state.blocked[node.index]
        if not taken.isdisjoint(units):
            return
        if self._may_carry(node):
            for cut, carried in self._cuts(node, position + 1):
                yield cut, (*units, *carried)
        for factor in range(len(node.sizes)) if self.free.issuperset(units) else ():
            mark = state.mark()
            if self._fill(node, units, factor):
                yield from self._cuts(node, position + 1)
            state.rollback(mark)

    def _fill(self, node: Node, units: Sequence[str], factor: int) -> bool:
        """Cut a factor by all units of an axis; what it cannot take goes to the next."""
        for number, unit in enumerate(units):
            while self.state.why_not(node, unit, factor) is not None:
                after = _after(node, factor) if number else None
                if after is None:
                    return False
                factor = after
            self.state.assign(node, unit, factor, _AUTO)
        return True

    def _sums(
        self, node: Node, axes: dict[int, tuple[str, ...]], carried: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, int], ...]]:
        """Each way to deal with what the node leaves open."""
        rule = node.rule
        if rule is None:
            yield ()
            return
        opened = [a for f in sorted(rule.reductions) for a in axes.get(f, ())]
        opened = [a for a in self.state.size if a in opened or a in carried]
        is_sum = bool(carried) or rule.monoid == "sum"
        groups = tuple(_by_axis(opened))
        ends = (self._ends(node, axes, units[0], is_sum) for units in groups)
        for chosen in product(*ends):
            sums = tuple(
                (unit, end)
                for units, end in zip(groups, chosen, strict=True)
                for unit in units
            )
            is_wanted = self._is_full or self._is_alike(node, sums)
            if is_wanted and self._divides(node, axes, sums):
                yield sums

    def _is_alike(self, node: Node, sums: tuple[tuple[str, int], ...]) -> bool:
        """Whether the same becomes of all sums but those that are decided."""
        value = node.outs[0][0] if node.outs else -1
        decided = self.state.scattered
        return len({end for axis, end in sums if (value, axis) not in decided}) <= 1

    def _ends(
        self, node: Node, axes: dict[int, tuple[str, ...]], axis: str, is_sum: bool
    ) -> tuple[int, ...]:
        value, dims = node.outs[0] if node.outs else (-1, ())
        if not is_sum or not _is_alone(node):
            return (ALL_REDUCE,)
        decided = self.state.scattered.get((value, axis))
        if decided is not None:
            return (decided,)
        ends = (ALL_REDUCE, KEEP_PARTIAL) if self._leaves(node) else (ALL_REDUCE,)
        return ends if axis not in self.free else (*ends, *range(len(dims)))

    def _leaves(self, node: Node) -> bool:
        """Whether the program lets a sum be handed on by this node."""
        return _is_alone(node) and self._carrier.is_cheap(node.outs[0][0])

    def _may_carry(self, node: Node) -> bool:
        """Whether some operand can arrive as addends."""
        return bool(self.carried(node))

    def carried(self, node: Node) -> frozenset[int]:
        """The operands of which those that arrive as addends are, if any do.

        Of a product it is one side or the other: the first of which some can.
        """
        for group, values in _linear(node):
            if any(map(self._may_be_left, values)):
                return group
        return frozenset()

    def _may_be_left(self, value: int) -> bool:
        """Whether a value may be handed on as addends, and can be some.

        No recursion: what is added up from layer to layer is a long chain.
        """
        known, graph = self._may_leave, self.state.graph
        waiting, seen = [value], set[int]()
        while value not in known:
            last = waiting[-1]
            node = graph.nodes[graph.producer[last]]
            before = [v for _, values in _linear(node) for v in values]
            if last in seen:
                known[last] = any(known.get(v, False) for v in before)
            elif not self._carrier.is_cheap(last):
                known[last] = False
            elif node.rule is not None and node.rule.reductions:
                known[last] = True
            else:
                seen.add(last)
                waiting += [v for v in before if v not in known and v not in seen]
                continue
            waiting.pop()
        return known[value]

    def _divides(
        self,
        node: Node,
        axes: dict[int, tuple[str, ...]],
        sums: tuple[tuple[str, int], ...],
    ) -> bool:
        """Whether what is scattered divides the dim that is left."""
        scattered = [(axis, dim) for axis, dim in sums if dim >= 0]
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


def _linear(node: Node) -> Iterator[tuple[frozenset[int], list[int]]]:
    """The groups of operands in which a node is linear, and the values that they are."""
    if node.rule is None or not node.rule.linear or not _is_alone(node):
        return
    assert node.op is not None
    places = [i for i, a in enumerate(node.op.operands) if isinstance(a, Value)]
    for group in node.rule.linear:
        yield (
            group,
            [v for i, (v, _) in zip(places, node.ins, strict=True) if i in group],
        )


def _by_axis(units: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """The units of each axis of the user's mesh, in order."""
    for _, run in groupby(units, key=lambda unit: user_axes((unit,))):
        yield tuple(run)


def _after(node: Node, factor: int) -> int | None:
    """The factor that follows another in a dim which is a product of them."""
    for _, dims in (*node.ins, *node.outs):
        for factors in dims:
            if factor in factors[:-1]:
                return factors[factors.index(factor) + 1]
    return None


def _is_alone(node: Node) -> bool:
    return len(node.outs) == 1


def _orders(
    cut: dict[int, tuple[str, ...]], decided: dict[int, tuple[str, ...]]
) -> Iterator[dict[int, tuple[str, ...]]]:
    """The same cut with the axes of each factor in every order; what stands stays."""
    factors = list(cut)
    ways = []
    for factor in factors:
        first = decided.get(factor, ())
        rest = cut[factor][len(first) :]
        orders = permutations(_by_axis(rest))
        ways.append([(*first, *chain.from_iterable(order)) for order in orders])
    for chosen in product(*ways):
        yield dict(zip(factors, chosen, strict=True))
