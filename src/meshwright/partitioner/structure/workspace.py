"""What a tactic works on: the graph, the state so far, and the names of the leaves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from meshwright.machine import Mesh
from meshwright.partitioner.propagate import Engine, Graph, Node, State
from meshwright.program.ir import Value


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something a tactic asked for and did not get: where, and why in one sentence."""

    where: str
    axis: str
    why: str

    def __str__(self) -> str:
        return f"{self.where} along {self.axis!r}: {self.why}"


@dataclass(frozen=True, slots=True)
class Sum:
    """In place of a dim: the dim of this number among those that an op sums over."""

    index: int

    def __str__(self) -> str:
        return f"sum {self.index}" if self.index else "sum"


@dataclass
class Workspace:
    """One partitioning under way.

    paths: of the input leaves. units: what each axis of the user's mesh is made of
    (itself, unless a reshape makes it spill over two dims). out_ties: output position
    -> input position, of state that the step passes on.
    """

    engine: Engine
    paths: Sequence[str]
    mesh: Mesh
    units: Mapping[str, tuple[str, ...]]
    refusals: list[Refusal] = field(default_factory=list)

    @property
    def graph(self) -> Graph:
        """The graph of the program."""
        return self.engine.graph

    @property
    def state(self) -> State:
        """The decisions so far."""
        return self.engine.state

    @property
    def tags(self) -> list[tuple[str, Node]]:
        """(name, node) of every tagged value, in order."""
        return [
            (str(op.params["name"]), node)
            for op, node in self.graph.op_node.items()
            if op.kind == "tag"
        ]

    def value(self, node: Node) -> Value:
        """The value that a node makes."""
        return self.graph.values[node.outs[0][0]]

    def cut(
        self, seeds: Iterable[tuple[str, Node, int | Sum]], axis: str, tactic: str
    ) -> None:
        """Cut dims of what nodes make, or sum over, all together, then propagate.

        seeds: (path, node, dim or sum). What cannot be cut is noted in `refusals`.
        """
        units = self.units[self.mesh.require(axis)]
        if len(units) > 1:  # all units of the axis or none
            seeds = [seed for seed in seeds if self._takes_all(*seed, axis)]
        seeds = list(seeds)
        for unit in units:
            accepted: list[tuple[Node, int]] = []
            for path, node, dim in seeds:
                if self._is_cut_so(node, dim, unit):
                    continue
                factor = self._factor(node, dim)
                why = (
                    f"{_named(dim)} of this {node.label} cannot be cut"
                    if factor is None
                    else self.state.why_not(node, unit, factor)
                )
                if why is None and factor is not None:
                    accepted.append((node, factor))
                else:
                    self.refusals.append(Refusal(path, axis, str(why)))
            self.engine.cut_all(accepted, unit, tactic)

    def _takes_all(self, path: str, node: Node, dim: int | Sum, axis: str) -> bool:
        factors, size = self._factors(node, dim), self.mesh.size(axis)
        extent = self._extent(node, factors)
        is_new = not self.is_cut(node, axis)
        if is_new and factors and extent % size:
            why = f"{size} parts do not divide extent {extent}"
            self.refusals.append(Refusal(path, axis, why))
            return False
        return True

    def block(self, nodes: Iterable[tuple[str, Node]], axes: Iterable[str]) -> None:
        """Keep what nodes make whole along axes from here on."""
        for axis in axes:
            for unit in self.units[self.mesh.require(axis)]:
                for path, node in nodes:
                    if unit in self.state.factor_of[node.index]:
                        why = "it is cut already, and no tactic undoes another"
                        self.refusals.append(Refusal(path, axis, why))
                    else:
                        self.state.block(node, unit)

    def is_cut(self, node: Node, axis: str) -> bool:
        """True when the axis is in use in what this node makes."""
        return any(u in self.state.factor_of[node.index] for u in self.units[axis])

    def local_extent(self, node: Node, dim: int) -> int:
        """Extent of a dim of what a node makes, on one device so far."""
        parts = 1
        for factor in node.outs[0][1][dim]:
            parts *= self.state.parts(node, factor)
        return self.value(node).shape[dim] // parts

    def sums(self, node: Node) -> tuple[int, ...]:
        """The factors over which a node sums, in the order of its operands' dims."""
        rule = node.rule
        if rule is None:
            return ()
        read = dict.fromkeys(f for dims in rule.operands for fs in dims for f in fs)
        return tuple(f for f in read if f in rule.reductions)

    def _extent(self, node: Node, factors: tuple[int, ...]) -> int:
        return math.prod(node.sizes[f] // self.state.parts(node, f) for f in factors)

    def _factors(self, node: Node, dim: int | Sum) -> tuple[int, ...]:
        if isinstance(dim, Sum):
            return self.sums(node)[dim.index : dim.index + 1]
        return node.outs[0][1][dim]

    def _is_cut_so(self, node: Node, dim: int | Sum, unit: str) -> bool:
        factor = self.state.factor_of[node.index].get(unit)
        return factor is not None and factor in self._factors(node, dim)

    def _factor(self, node: Node, dim: int | Sum) -> int | None:
        factors = self._factors(node, dim)
        for factor in factors:
            if self.state.parts(node, factor) < node.sizes[factor]:
                return factor
        return factors[0] if factors else None


def _named(dim: int | Sum) -> str:
    return str(dim) if isinstance(dim, Sum) else f"dim {dim}"
