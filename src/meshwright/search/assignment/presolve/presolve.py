"""Presolve: merge nodes, and remove choices that are of no use, in rounds.

A choice is removed if it does not fit into memory, or is dominated: another choice of
the node costs no more, whatever the neighbours choose, and takes no more memory at any
time (dead-end elimination: Desmet et al., Nature 356, 1992). A pair of choices of nodes
A and B is dominated if, given B's choice, another choice of A costs no more, whatever
A's other neighbours choose. A node that has one neighbour and takes no memory keeps one
choice for each choice of that neighbour, and is then merged with it.
"""

from dataclasses import replace

import numpy as np

from meshwright.errors import AssignmentError
from meshwright.search.arrays import Bools, Floats
from meshwright.search.assignment.presolve.merge import merge_followers
from meshwright.search.assignment.problem.assignment import Assignment
from meshwright.search.assignment.problem.memory_rows import (
    MemoryRows,
    Segments,
    drop_unfit,
    memory_of,
)
from meshwright.search.assignment.problem.reduced_problem import (
    CostGraph,
    ReducedProblem,
    strides_at,
)
from meshwright.search.compiled import compiled

_ROUNDS = 12  # later rounds would remove only single pairs
_WORTH = (
    0.985  # another round follows if less than this share of choices or pairs is left
)
_LARGEST = 5_000_000  # nodes with more entries in the array `worst` are skipped


def merge(problem: Assignment) -> tuple[ReducedProblem, MemoryRows]:
    """The problem with dependent nodes merged, and its memory constraints.

    This is the quick part of presolve: a node is merged with a neighbour whose choice
    determines its own. Raises AssignmentError if every solution is forbidden or exceeds
    memory.
    """
    return with_memory(problem, merge_followers(ReducedProblem.whole(problem)))


def presolve(
    problem: Assignment, reduced: ReducedProblem | None
) -> tuple[ReducedProblem, MemoryRows]:
    """A smaller problem that keeps an optimal solution, and its memory constraints.

    Raises AssignmentError if `reduced` is `None` (infeasible), or if no solution fits.
    """
    reduced, memory = with_memory(problem, reduced)
    for _ in range(_ROUNDS):
        before = reduced.graph.starts[-1], np.isfinite(reduced.graph.tables).sum()
        kept, graph = drop_dominated(reduced, memory)
        slack = np.maximum(memory.slack, 0)
        drop_unfit(memory.segments, graph.starts, slack, kept)
        smaller = merge_followers(replace(reduced, graph=graph), kept)
        reduced, memory = with_memory(problem, smaller)
        after = reduced.graph.starts[-1], np.isfinite(reduced.graph.tables).sum()
        if after[0] > _WORTH * before[0] and after[1] > _WORTH * before[1]:
            break
    return reduced, memory


def with_memory(
    problem: Assignment, reduced: ReducedProblem | None
) -> tuple[ReducedProblem, MemoryRows]:
    """A reduced problem together with its memory constraints.

    Raises AssignmentError if it is `None` or nothing fits into memory.
    """
    if reduced is None:
        raise AssignmentError(
            "no solution: costs forbid all combinations of choices that fit into memory"
        )
    memory = memory_of(problem, reduced)
    missing = -memory.slack.min(initial=0.0)
    if missing > 0:
        raise AssignmentError(
            f"no solution fits: every one takes at least {missing:g} more than "
            f"the usage limit of {problem.limit:g}"
        )
    return reduced, memory


def drop_dominated(
    reduced: ReducedProblem, memory: MemoryRows
) -> tuple[Bools, CostGraph]:
    """A mask of undominated choices, and the graph with dominated pairs forbidden.

    At least one optimal solution remains.
    """
    kept = reduced.costs < np.inf
    graph = reduced.graph._replace(tables=reduced.graph.tables.copy())
    drop_in_place(graph, reduced.costs, memory.segments, kept)
    return kept, graph


@compiled
def find_worst(
    graph: CostGraph, kept: Bools, edge: int, node: int, worst: Floats
) -> None:
    """Set `worst[k, q]` to the most that an edge's cost rises from choice k to q.

    The maximum is over all choices of the neighbour at the edge's other end.
    """
    stride_k, stride_m, other = strides_at(graph, edge, node)
    start = graph.starts[node]
    width = graph.starts[node + 1] - start
    for k in range(width):
        for q in range(width):
            most = -np.inf
            if q != k and kept[start + k] and kept[start + q]:
                for m in range(graph.starts[other + 1] - graph.starts[other]):
                    at = graph.table_starts[edge] + m * stride_m
                    old = graph.tables[at + k * stride_k]
                    if kept[graph.starts[other] + m] and old < np.inf:
                        most = max(most, graph.tables[at + q * stride_k] - old)
            worst[k, q] = most


@compiled
def takes_no_more_memory(segments: Segments, node: int, k: int, q: int) -> bool:
    """Whether choice `q` of a node takes no more memory than choice `k` at any time."""
    for s in range(segments.starts[node], segments.starts[node + 1]):
        block = segments.block_starts[s]
        if segments.excess[block + q] > segments.excess[block + k]:
            return False
    return True


@compiled
def is_less(new: float, old: float, is_first: bool) -> bool:
    """Whether the cost `new` is less than `old`; with `is_first`, equal is enough.

    A choice that justified an earlier removal may be removed itself. So replacements
    must never form a cycle, neither by ties nor by rounding.
    """
    if is_first:
        return new <= old
    return new < old - 1e-12 * max(abs(new), abs(old))


@compiled
def drop_pairs(
    graph: CostGraph, edge: int, node: int, k: int, q: int, rest: float
) -> None:
    """Forbid pairs of choice `k` and a neighbour's choice with which `q` is as good.

    rest: most by which all other costs rise from `k` to `q`.
    """
    stride_k, stride_m, other = strides_at(graph, edge, node)
    for m in range(graph.starts[other + 1] - graph.starts[other]):
        at = graph.table_starts[edge] + m * stride_m
        new = float(graph.tables[at + q * stride_k])
        old = float(graph.tables[at + k * stride_k])
        if new < np.inf and is_less(rest + new, old, q < k):
            graph.tables[at + k * stride_k] = np.inf


@compiled
def drop_in_place(  # noqa: C901  one loop over nodes, choices and edges
    graph: CostGraph, costs: Floats, segments: Segments, kept: Bools
) -> None:
    """Remove dominated choices from `kept` and forbid dominated pairs, in place."""
    for i in range(len(graph.starts) - 1):
        start = graph.starts[i]
        width = graph.starts[i + 1] - start
        first = graph.edge_starts[i]
        degree = graph.edge_starts[i + 1] - first
        if width * width * degree > _LARGEST or width == 1:
            continue
        worst = np.empty((degree, width, width))
        for d in range(degree):
            find_worst(graph, kept, int(graph.edges[first + d]), i, worst[d])
        for k in range(width):
            for q in range(width):
                if k == q or not (kept[start + k] and kept[start + q]):
                    continue
                if not takes_no_more_memory(segments, i, k, q):
                    continue
                total = costs[start + q] - costs[start + k]
                num_infinite = 0  # edges that forbid `q` for some choice
                for d in range(degree):
                    if worst[d, k, q] == np.inf:
                        num_infinite += 1
                    else:
                        total += worst[d, k, q]
                if num_infinite == 0 and is_less(float(total), 0.0, q < k):
                    kept[start + k] = False
                if not kept[start + k] or num_infinite > 1 or total == -np.inf:
                    continue
                for d in range(degree):
                    is_infinite = worst[d, k, q] == np.inf
                    if num_infinite == 0 or is_infinite:
                        rest = float(total)
                        if not is_infinite:
                            rest -= float(worst[d, k, q])
                        drop_pairs(graph, int(graph.edges[first + d]), i, k, q, rest)
