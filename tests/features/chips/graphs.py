"""Graphs for tests of multi-chip partitioning, and enumeration of all partitions."""

import itertools
from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st

from meshwright.features.chips.constraints.checker import violations
from meshwright.features.chips.graph.chip_graph import ChipEdge, ChipGraph, ChipOp
from meshwright.features.chips.problem.chip_module import ChipModule
from meshwright.features.chips.problem.chip_problem import ChipProblem
from meshwright.search.arrays import Ints

ROOMY = 1e12
"""Bytes of a memory that never binds."""


def chain(seconds: list[float], num_bytes: int = 1) -> ChipGraph:
    """Ops one after another."""
    ops = [ChipOp(f"op {i}", s) for i, s in enumerate(seconds)]
    return ChipGraph.of(
        ops, [ChipEdge(i, i + 1, num_bytes) for i in range(len(ops) - 1)]
    )


def residual(blocks: int) -> ChipGraph:
    """Blocks of two ops with an edge around each."""
    edges = []
    for i in range(blocks):
        edges += [ChipEdge(2 * i, 2 * i + 1), ChipEdge(2 * i + 1, 2 * i + 2)]
        edges.append(ChipEdge(2 * i, 2 * i + 2))
    return ChipGraph.of([ChipOp(f"op {i}", 1.0) for i in range(2 * blocks + 1)], edges)


def module(chips: int, memory: float = ROOMY, rate: float = 1e9) -> ChipModule:
    """Chips with fast links."""
    return ChipModule(chips, memory, rate)


def problem(graph: ChipGraph, chips: int) -> ChipProblem:
    """A graph on chips with room and fast links."""
    return ChipProblem(graph, module(chips))


def valid_partitions(graph: ChipGraph, chips: int) -> Iterator[Ints]:
    """Every valid partition, by trying all assignments."""
    for each in itertools.product(range(chips), repeat=graph.num_ops):
        found = np.array(each, np.int64)
        if not any(violations(graph, found, chips)):
            yield found


@st.composite
def random_graphs(draw: st.DrawFn, most_ops: int = 12) -> ChipGraph:
    """Acyclic graphs with edges in any places."""
    count = draw(st.integers(1, most_ops))
    pairs = [(u, v) for v in range(count) for u in range(v)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    seconds = draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    sizes = draw(st.lists(st.integers(0, 9), min_size=len(edges), max_size=len(edges)))
    return ChipGraph.of(
        [ChipOp(f"op {i}", float(s), s) for i, s in enumerate(seconds)],
        [ChipEdge(u, v, 10**8 * b) for (u, v), b in zip(edges, sizes, strict=True)],
    )
