"""The graph of ops to be placed on chips: seconds, weights, and values between ops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

import numpy as np

from meshwright.errors import ChipsError
from meshwright.search.arrays import Floats, Ints


class ChipOp(NamedTuple):
    """An op of a graph that is given by hand: its name, seconds, and bytes of weights."""

    name: str
    seconds: float
    weight_bytes: int = 0


class ChipEdge(NamedTuple):
    """A value of `num_bytes` bytes from one op to another; ops are numbered from 0."""

    source: int
    target: int
    num_bytes: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class ChipGraph:
    """Ops in topological order, the values that they exchange, and their weights.

    names, seconds: name of each op, and its seconds on one chip, [N].
    producers, value_bytes: op that computes each value, and the value's size, [V].
    reads: pairs (value, op that reads it), sorted and without repetition, [R, 2].
    weight_bytes: sizes of the weights, arrays that stay on each chip that reads them,
        [W].
    weight_reads: pairs (weight, op that reads it), sorted, [Q, 2].
    """

    names: tuple[str, ...]
    seconds: Floats
    producers: Ints
    value_bytes: Ints
    reads: Ints
    weight_bytes: Ints
    weight_reads: Ints

    def __post_init__(self) -> None:
        if not self.names:
            raise ChipsError("the graph has no op: give a program that computes")
        if len(self.seconds) != self.num_ops:
            raise ChipsError(f"{self.num_ops} ops, but {len(self.seconds)} times")
        sizes = (self.seconds, self.value_bytes, self.weight_bytes)
        if not all(np.isfinite(s).all() and (s >= 0).all() for s in sizes):
            raise ChipsError(
                "seconds and bytes of a graph must be finite and not below 0"
            )
        sources = self.producers[self.reads[:, 0]]
        if (sources >= self.reads[:, 1]).any():
            raise ChipsError("ops are not in topological order: use `ChipGraph.of`")

    @property
    def num_ops(self) -> int:
        """The number of ops N."""
        return len(self.names)

    @property
    def edges(self) -> Ints:
        """Pairs (op, op that reads one of its values), each once, sorted, [E, 2]."""
        sources = self.producers[self.reads[:, 0]]
        pairs = np.stack([sources, self.reads[:, 1]], axis=1).reshape(-1, 2)
        return np.unique(pairs, axis=0)

    @classmethod
    def of(cls, ops: Sequence[ChipOp], edges: Iterable[ChipEdge]) -> ChipGraph:
        """The graph of ops and edges, which may be in any order.

        Raises `ChipsError` if the edges form a cycle.

        >>> ChipGraph.of([ChipOp("a", 1.0), ChipOp("b", 2.0)], [ChipEdge(0, 1, 8)]).num_ops
        2
        """
        known = [ChipEdge(*edge) for edge in edges]
        for edge in known:
            if not (0 <= edge.source < len(ops) and 0 <= edge.target < len(ops)):
                raise ChipsError(f"{edge} joins no two of the ops 0 to {len(ops) - 1}")
        order = _topological_order(ops, known)
        place = {op: i for i, op in enumerate(order)}
        weights = [(place[i], op.weight_bytes) for i, op in enumerate(ops)]
        weights = sorted(w for w in weights if w[1])
        return cls(
            tuple(ops[i].name for i in order),
            np.array([ops[i].seconds for i in order], np.float64),
            np.array([place[e.source] for e in known], np.int64),
            np.array([e.num_bytes for e in known], np.int64),
            pairs_of([(v, place[e.target]) for v, e in enumerate(known)]),
            np.array([size for _, size in weights], np.int64),
            pairs_of([(w, op) for w, (op, _) in enumerate(weights)]),
        )


def pairs_of(pairs: Iterable[tuple[int, int]]) -> Ints:
    """The pairs sorted and without repetition, as an array [n, 2]."""
    return np.array(sorted(set(pairs)), np.int64).reshape(-1, 2)


def _topological_order(ops: Sequence[ChipOp], edges: Sequence[ChipEdge]) -> list[int]:
    """The positions of the ops, sorted so that sources come before targets.

    Ops keep the given order where edges allow it.
    """
    sorter = TopologicalSorter({i: set[int]() for i in range(len(ops))})
    for edge in edges:
        sorter.add(edge.target, edge.source)
    try:
        sorter.prepare()
    except CycleError as error:
        around = " -> ".join(ops[i].name for i in error.args[1])
        raise ChipsError(
            f"the graph has a cycle, {around}: data can only flow from lower to higher "
            "chips; compute the loop in one op"
        ) from None
    order: list[int] = []
    ready: list[int] = []
    while sorter.is_active():
        ready = sorted({*ready, *sorter.get_ready()})
        order.append(ready.pop(0))
        sorter.done(order[-1])
    return order
