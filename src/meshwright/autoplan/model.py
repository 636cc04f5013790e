"""The choices of all groups as one integer program: a cost each, and one for each pair.

A value with several readers gets a node of its own, a *view*: the form in which it is
kept for them. What leads to it is paid once, what leads on from it by each reader; so
gathering once or at every use is a choice like any other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.autoplan.compute import Compute
from meshwright.autoplan.fold import Edge, Fold, Group
from meshwright.autoplan.moves import Moves
from meshwright.autoplan.roles import Role, roles_of
from meshwright.autoplan.strategy import ALL, Cuts, Strategies, Strategy
from meshwright.ir import Value
from meshwright.propagate import Node, State

type Table = NDArray[np.float64]

Form = tuple[Cuts, frozenset[str]]
"""How a value is cut, and the axes along which it is addends."""

Need = tuple[Cuts, frozenset[str], bool]
"""How a value is wanted: its cuts, the axes along which it may be addends, and whether
it may be whole there, too."""

FORBIDDEN = np.inf


@dataclass(frozen=True, slots=True)
class View:
    """A value of a group as its readers find it; forms are its choices."""

    maker: int
    result: int
    forms: tuple[Form, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """A table of seconds over the choices of two variables.

    made: the value that passes, (group, result); bytes that the second variable's
    choice holds beside the first's are `extra` [A, B], of one value.
    """

    first: int
    second: int
    seconds: Table
    made: tuple[int, int]
    extra: Table | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """Variables: the groups in order, then the views.

    choices: of each group. costs: seconds per choice and variable. held: per group, per
    result, bytes of one value by choice.
    """

    fold: Fold
    choices: tuple[tuple[Strategy, ...], ...]
    views: tuple[View, ...]
    costs: tuple[Table, ...]
    links: tuple[Link, ...]
    held: tuple[tuple[Table, ...], ...]


class ModelBuilder:
    """Prices all choices on one mesh."""

    def __init__(
        self, state: State, fold: Fold, strategies: Strategies, compute: Compute
    ) -> None:
        self.state = state
        self.graph = state.graph
        self.fold = fold
        self.strategies = strategies
        self.compute = compute
        self._roles = roles_of(state.graph.program)
        # Choices are shared by all nodes with the same rule, and so is what they need.
        self._known: dict[object, list[Need]] = {}

    def build(self, moves: Moves) -> Model:
        """The model with these prices of collectives."""
        choices = tuple(self.strategies.of(g.node) for g in self.fold.groups)
        costs = [
            self._costs(group, own, moves)
            for group, own in zip(self.fold.groups, choices, strict=True)
        ]
        by_value: dict[tuple[int, int], list[Edge]] = defaultdict(list)
        for edge in self.fold.edges:
            by_value[edge.maker, edge.result].append(edge)
        views: list[View] = []
        links: list[Link] = []
        for (maker, result), edges in by_value.items():
            made = [self._form(maker, result, s) for s in choices[maker]]
            if len(edges) == 1:
                links.append(self._link(maker, made, edges[0], choices, moves))
                continue
            needs = (self._needs(e, choices[e.reader]) for e in edges)
            wanted = dict.fromkeys(cuts for each in needs for cuts, _, _ in each)
            whole: frozenset[str] = frozenset()
            forms = tuple(dict.fromkeys([*made, *((cuts, whole) for cuts in wanted)]))
            number = len(choices) + len(views)
            views.append(View(maker, result, forms))
            costs.append(np.zeros(len(forms)))
            runs = self.fold.groups[maker].runs
            links.append(
                self._view_link(maker, result, number, made, forms, runs, moves)
            )
            links += [self._link(number, forms, edge, choices, moves) for edge in edges]
        held = tuple(
            tuple(
                self._bytes(number, [s.stored(dims) for s in own])
                for number, dims in group.node.outs
            )
            for group, own in zip(self.fold.groups, choices, strict=True)
        )
        return Model(self.fold, choices, tuple(views), tuple(costs), tuple(links), held)

    # -- one group ------------------------------------------------------------------

    def _costs(self, group: Group, choices: Sequence[Strategy], moves: Moves) -> Table:
        by_axes = {s.axes: s for s in choices}  # sums change nothing
        found = {a: self.compute.seconds(group.node, s) for a, s in by_axes.items()}
        seconds = np.array([found[s.axes] for s in choices])
        sums = [self._sums_s(group.node, s, moves) for s in choices]
        return group.runs * (seconds + np.array(sums))

    def _sums_s(self, node: Node, strategy: Strategy, moves: Moves) -> float:
        """Seconds of the collectives that a node itself writes."""
        role = self._role(node.outs[0][0]) if node.outs else Role.OTHER
        total = sum(
            moves.seconds(kind, axes, num_bytes, Role.OTHER)
            for kind, axes, num_bytes in self.compute.collectives(node, strategy)
        )
        if not strategy.sums:
            return total
        whole = tuple(axis for axis, what in strategy.sums if what == ALL)
        for value, dims in node.outs:
            cuts = strategy.cuts(dims)
            size = self.compute.local_bytes(self._value(value), cuts)
            for dim in range(len(dims)):
                run = tuple(axis for axis, what in strategy.sums if what == dim)
                total += moves.seconds("reduce_scatter", run, size, role)
                size /= self.state.mesh.size(run)
            total += moves.seconds("all_reduce", whole, size, role)
        return total

    def _role(self, number: int) -> Role:
        return self._roles.get(self._value(number), Role.OTHER)

    def _value(self, number: int) -> Value:
        return self.graph.values[number]

    def _bytes(self, number: int, forms: Sequence[Cuts]) -> Table:
        """Of one device's part of a value, by how it is cut."""
        whole = self.compute.stores.layout.num_bytes(self._value(number))
        return whole / np.array([self.compute.parts(cuts) for cuts in forms])

    # -- between two ----------------------------------------------------------------

    def _form(self, group: int, result: int, strategy: Strategy) -> Form:
        dims = self.fold.groups[group].node.outs[result][1]
        return strategy.stored(dims), strategy.left

    def _needs(self, edge: Edge, choices: Sequence[Strategy]) -> list[Need]:
        """How a reader wants an operand, by its choice."""
        node = self.fold.groups[edge.reader].node
        dims = node.ins[edge.operand][1]
        group = self.strategies.carried(node)
        is_carried = bool(group) and _operand_places(node)[edge.operand] in group
        key = id(choices), dims, is_carried, len(group)
        known = self._known.get(key)
        if known is None:
            none: frozenset[str] = frozenset()
            known = self._known[key] = [
                (s.cuts(dims), frozenset(s.carries), len(group) > 1)
                if is_carried and s.carries
                else (s.cuts(dims), none, True)
                for s in choices
            ]
        return known

    def _link(
        self,
        first: int,
        forms: Sequence[Form],
        edge: Edge,
        choices: Sequence[Sequence[Strategy]],
        moves: Moves,
    ) -> Link:
        needs = self._needs(edge, choices[edge.reader])
        number = self.fold.groups[edge.maker].node.outs[edge.result][0]
        table = self._table(forms, needs, number, moves)
        return Link(first, edge.reader, edge.runs * table, (edge.maker, edge.result))

    def _view_link(  # noqa: PLR0913
        self, maker: int, result: int, number: int, made: Sequence[Form],
        forms: Sequence[Form], runs: float, moves: Moves,
    ) -> Link:  # fmt: skip
        value = self.fold.groups[maker].node.outs[result][0]
        needs = [(cuts, left, not left) for cuts, left in forms]
        table = self._table(made, needs, value, moves)
        numbers = {cuts: i for i, (cuts, _) in enumerate(forms)}
        same = np.equal.outer(
            [numbers[cuts] for cuts, _ in made], [numbers[cuts] for cuts, _ in forms]
        )
        extra = np.where(same, 0.0, self._bytes(value, [cuts for cuts, _ in forms]))
        return Link(maker, number, runs * table, (maker, result), extra)

    def _table(
        self,
        forms: Sequence[Form],
        needs: Sequence[Need],
        number: int,
        moves: Moves,
    ) -> Table:
        """Seconds from each form of a value to each form that is needed."""
        haves = list(dict.fromkeys(cuts for cuts, _ in forms))
        wants = list(dict.fromkeys(cuts for cuts, _, _ in needs))
        num_bytes = self.compute.stores.layout.num_bytes(self._value(number))
        small = moves.table(haves, wants, num_bytes, self._role(number))
        rows = [haves.index(cuts) for cuts, _ in forms]
        columns = [wants.index(cuts) for cuts, _, _ in needs]
        table = small[np.ix_(rows, columns)]
        lefts = list(dict.fromkeys(left for _, left in forms))
        ends = list(dict.fromkeys((takes, whole) for _, takes, whole in needs))
        meets = np.array([[_meets(left, *end) for end in ends] for left in lefts])
        left_rows = [lefts.index(left) for _, left in forms]
        end_columns = [ends.index((takes, whole)) for _, takes, whole in needs]
        allowed = meets[np.ix_(left_rows, end_columns)]
        return np.where(allowed, table, FORBIDDEN)


def _meets(left: frozenset[str], takes: frozenset[str], whole: bool) -> bool:
    """Whether a reader takes a value that is addends along `left`."""
    if not left <= takes:
        return False
    return whole or left == takes


def _operand_places(node: Node) -> list[int]:
    """Per value that an op reads, as which of its operands."""
    assert node.op is not None
    return [i for i, a in enumerate(node.op.operands) if isinstance(a, Value)]
