"""A partition problem: a graph, a module, and what repeated evaluations share."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from meshwright.errors import ChipsError
from meshwright.planner.chips.constraints.repair import ChipSolver
from meshwright.planner.chips.graph.chip_graph import ChipGraph
from meshwright.planner.chips.graph.skips import relative_seconds, skips_of
from meshwright.planner.chips.problem.chip_module import ChipModule
from meshwright.planner.chips.problem.load import ChipLoad, load_of, read_columns
from meshwright.search.arrays import Floats, Ints


class ChipProblem:
    """A graph to be placed on a module; `ChipsError` if its weights cannot fit."""

    def __init__(self, graph: ChipGraph, module: ChipModule) -> None:
        self.graph, self.module = graph, module
        self.columns = read_columns(graph)
        _require_memory(graph, module)

    @cached_property
    def solver(self) -> ChipSolver:
        """The constraint solver of the graph."""
        return ChipSolver(self.graph, self.module.num_chips)

    @cached_property
    def by_seconds(self) -> Ints:
        """Ops from the longest to the shortest: the order in which a repair keeps them."""
        return np.argsort(-self.graph.seconds, kind="stable")

    @cached_property
    def relatives_s(self) -> tuple[Floats, Floats]:
        """Seconds of all ops above each op, and of all below."""
        return relative_seconds(self.graph)

    def load(self, chips: Ints) -> ChipLoad:
        """The load of a partition."""
        return load_of(self.columns, self.module, chips)

    def repaired(self, candidate: Ints, begin: Ints | None = None) -> Ints:
        """A valid partition near a candidate.

        Ops that have moved since `begin` keep their chips first, then all others; among
        them the longest first.
        """
        order = self.by_seconds
        if begin is not None:
            is_moved = (candidate != begin)[order]
            order = np.concatenate([order[is_moved], order[~is_moved]])
        return self.solver.fix(candidate, order)

    def even_weights(self) -> Ints:
        """An assignment in the graph's order with about as many weights on each chip."""
        graph, count = self.graph, self.module.num_chips
        held = np.cumsum(weights_by_op(graph))
        if not held[-1]:
            held = np.arange(1, graph.num_ops + 1)
        share = held / held[-1]
        return np.minimum((share * count).astype(np.int64), count - 1)

    @cached_property
    def bound_s(self) -> float:
        """Lower bound on the seconds of the bottleneck of every partition.

        It is the largest of three: the longest op; all seconds, divided by the number of
        chips; and half of the seconds of all ops from one end to the other of an edge
        whose ends other paths join, too, since these ops share two chips.
        """
        graph = self.graph
        bound = max(graph.seconds.max(), graph.seconds.sum() / self.module.num_chips)
        skips = skips_of(graph)
        sums = np.concatenate([[0.0], np.cumsum(graph.seconds[skips.between])])
        inside = sums[skips.between_at[1:]] - sums[skips.between_at[:-1]]
        ends = graph.seconds[skips.ends].sum(axis=1)
        return float(max(bound, ((inside + ends) / 2).max(initial=0.0)))


def _require_memory(graph: ChipGraph, module: ChipModule) -> None:
    """Raise if the weights of one op, or all weights, exceed the memory."""
    per_op = weights_by_op(graph)
    largest = int(per_op.argmax())
    have = module.memory_bytes
    if per_op[largest] > have:
        raise ChipsError(
            f"{graph.names[largest]} alone reads {per_op[largest]:.0f} bytes of weights, "
            f"and a chip has {have:.0f}: give chips with more memory, or split the op"
        )
    used = np.unique(graph.weight_reads[:, 0])
    total = int(graph.weight_bytes[used].sum())
    if total > have * module.num_chips:
        raise ChipsError(
            f"the weights take {total} bytes, and {module.num_chips} chips of {have:.0f} "
            f"bytes have {have * module.num_chips:.0f}: give more chips, or smaller weights"
        )


def weights_by_op(graph: ChipGraph) -> Floats:
    """Bytes of the weights that each op reads [N]."""
    read, op = graph.weight_reads[:, 0], graph.weight_reads[:, 1]
    return np.bincount(op, graph.weight_bytes[read], minlength=graph.num_ops)
