"""Cones: the subgraphs of a network that can be replaced by others.

A cone is the ops on which one value depends, back to at most two other values. All that
reads a result within the cone lies within it, except for the readers of its output. So
another way to compute the output from the cone's inputs can take its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from meshwright.features.codesign.nas.rewriting.network import ModelProgram
from meshwright.program.ir import Atom, Op, Value
from meshwright.program.rules.factors import is_inexact

MOST_INPUTS = 2
"""Values that a cone may read; a residual block reads one, its sum two."""

LARGEST_SHARE = 0.5
"""Ops of a cone at most, as a share of those on activations (alphaNAS)."""


@dataclass(frozen=True, slots=True)
class Cone:
    """A subgraph with one output.

    ops: positions in the program, ascending.
    inputs: the activations that it reads, in order of appearance.
    """

    ops: tuple[int, ...]
    inputs: tuple[Value, ...]
    output: Value


def cones_of(network: ModelProgram, share: float = LARGEST_SHARE) -> list[Cone]:
    """All cones with at most this share of the ops, by output and then by size."""
    graph = _Graph.of(network)
    most = max(1, round(share * len(graph.ops)))
    return [cone for at in graph.ops for cone in graph.grown(at, most)]


@dataclass(frozen=True, slots=True)
class _Graph:
    """The ops of a network on activations.

    ops: their positions. made: the position of the op that makes a value.
    readers: the positions of the ops that read a value; -1 for the network's output.
    """

    network: ModelProgram
    ops: tuple[int, ...]
    made: dict[Atom, int]
    readers: dict[Atom, set[int]]

    @staticmethod
    def of(network: ModelProgram) -> _Graph:
        made: dict[Atom, int] = {}
        readers: dict[Atom, set[int]] = {a: {-1} for a in network.program.outputs}
        ops: list[int] = []
        for at, op in enumerate(network.program.ops):
            for operand in op.operands:
                readers.setdefault(operand, set()).add(at)
            if network.activations.isdisjoint(op.results):
                continue
            ops.append(at)
            made.update(dict.fromkeys(op.results, at))
        return _Graph(network, tuple(ops), made, readers)

    def op(self, at: int) -> Op:
        return self.network.program.ops[at]

    def grown(self, at: int, most: int) -> Iterator[Cone]:
        """The cones of the op at this position, from small to large.

        The op whose results are all read within grows the cone, the latest one first.
        """
        results = self.op(at).results
        if (
            len(results) != 1
            or self.op(at).has_effect
            or not is_inexact(results[0].dtype)
        ):
            return
        inside = {at}
        while len(inside) <= most:
            inputs = self._inputs(inside)
            if len(inputs) <= MOST_INPUTS and all(is_inexact(v.dtype) for v in inputs):
                yield Cone(tuple(sorted(inside)), inputs, results[0])
            grows = [
                self.made[v]
                for v in inputs
                if v in self.made and self._is_absorbed(self.made[v], inside)
            ]
            if not grows:
                return
            inside.add(max(grows))

    def _inputs(self, inside: set[int]) -> tuple[Value, ...]:
        read = (a for at in sorted(inside) for a in self.op(at).operands)
        return tuple(
            dict.fromkeys(
                a
                for a in read
                if isinstance(a, Value)
                and a in self.network.activations
                and self.made.get(a, -1) not in inside
            )
        )

    def _is_absorbed(self, at: int, inside: set[int]) -> bool:
        op = self.op(at)
        return not op.has_effect and all(
            self.readers.get(r, set()) <= inside for r in op.results
        )
