"""A partition problem: a graph of ops, a module of chips, and what evaluations share."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from meshwright.errors import ChipsError
from meshwright.features.chips.constraints.repair import ChipSolver
from meshwright.features.chips.graph.chip_graph import ChipGraph
from meshwright.features.chips.graph.skip_edges import relative_seconds, skips_of
from meshwright.features.chips.problem.chip_module import ChipModule
from meshwright.features.chips.problem.load import ChipLoad, load_of, read_columns
from meshwright.search.arrays import Floats, Ints


class ChipProblem:
    """A graph to be placed on the chips of a module.

    Raises `ChipsError` if the weights cannot fit into memory.
    """

    def __init__(self, graph: ChipGraph, module: ChipModule) -> None:
        self.graph, self.module = graph, module
        self.columns = read_columns(graph)
        _require_memory(graph, module)

    @cached_property
    def solver(self) -> ChipSolver:
        """The constraint solver that makes partitions of this graph valid."""
        return ChipSolver(self.graph, self.module.num_chips)

    @cached_property
    def by_seconds(self) -> Ints:
        """Ops from the longest to the shortest.

        In this order a repair tries to keep their chips.
        """
        return np.argsort(-self.graph.seconds, kind="stable")

    @cached_property
    def relatives_s(self) -> tuple[Floats, Floats]:
        """Seconds of all ops from which each op can be reached, and that it reaches."""
        return relative_seconds(self.graph)

    def load(self, chips: Ints) -> ChipLoad:
        """The seconds of each chip and link, and the memory, with this partition."""
        return load_of(self.columns, self.module, chips)

    def repaired(self, candidate: Ints, begin: Ints | None = None) -> Ints:
        """A valid partition near a candidate that may be invalid.

        The ops that have moved since `begin` keep their chips with priority; among
        them, and among all others, the longest first.
        """
        order = self.by_seconds
        if begin is not None:
            is_moved = (candidate != begin)[order]
            order = np.concatenate([order[is_moved], order[~is_moved]])
        return self.solver.fix(candidate, order)

    def even_weights(self) -> Ints:
        """An assignment, in the order of the graph, with similar weights per chip."""
        graph, count = self.graph, self.module.num_chips
        held = np.cumsum(weights_by_op(graph))
        if not held[-1]:
            held = np.arange(1, graph.num_ops + 1)
        share = held / held[-1]
        return np.minimum((share * count).astype(np.int64), count - 1)

    @cached_property
    def bound_s(self) -> float:
        """Lower bound on the bottleneck of every partition, in seconds.

        It is the largest of three lower bounds:

        - The seconds of the longest op, since one chip runs that op.
        - The seconds of all ops divided by the number of chips.
        - For each edge around which other paths lead, half of the seconds of the edge's
          two ends and of all ops on these paths. The triangle constraint puts these ops
          on at most two chips (`skip_edges.py`), so that one chip has at least half.
        """
        graph = self.graph
        bound = max(graph.seconds.max(), graph.seconds.sum() / self.module.num_chips)
        skips = skips_of(graph)
        sums = np.concatenate([[0.0], np.cumsum(graph.seconds[skips.between])])
        inside = sums[skips.between_at[1:]] - sums[skips.between_at[:-1]]
        ends = graph.seconds[skips.ends].sum(axis=1)
        return float(max(bound, ((inside + ends) / 2).max(initial=0.0)))


def _require_memory(graph: ChipGraph, module: ChipModule) -> None:
    """Raise `ChipsError` if weights of one op, or all weights, exceed the memory."""
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
    """Bytes of the weights that each op reads, [N]."""
    read, op = graph.weight_reads[:, 0], graph.weight_reads[:, 1]
    return np.bincount(op, graph.weight_bytes[read], minlength=graph.num_ops)
