"""The assignment problem: one choice per node at least cost, within a memory limit.

A node is a variable, for example a tensor; its choices are the values it can take, for
example shardings. Nodes have costs, and so do pairs of neighbouring nodes. This is the
problem of the IOPDDL contest (ASPLOS / EuroSys 2025), and of Alpa's intra-op pass
(Zheng et al., OSDI 2022): a weighted constraint satisfaction problem with pairwise
costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshwright.errors import AssignmentError
from meshwright.search.arrays import Floats, Ints, starts_of

type Choices = Sequence[int] | NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """Nodes with choices, edges with costs of pairs of choices, and a memory limit.

    A solution takes one choice per node. An infinite cost forbids a choice or a pair of
    choices. Arrays are flat and read-only. N is the number of nodes, E of edges, C of
    all choices.
    starts: offset of each node's choices in `costs` and `usages`, [N + 1]
    costs, usages: cost and memory of each choice, [C]
    lives: half-open interval of times in which a node takes memory, [N, 2]; may be
        empty
    ends: the two nodes of each edge, [E, 2]; two nodes may have several edges
    table_starts: offset of each edge's table in `tables`, [E + 1]
    tables: cost of each pair of choices; each edge's table is in row-major order, with
        one row per choice of the edge's first node
    limit: largest sum of usages over all live nodes at any time, `None` for no limit
    """

    starts: Ints
    costs: Floats
    usages: Floats
    lives: Ints
    ends: Ints
    table_starts: Ints
    tables: Floats
    limit: float | None

    def __post_init__(self) -> None:
        _check_nodes(self)
        _check_edges(self)
        for array in (self.starts, self.costs, self.usages, self.lives):
            array.flags.writeable = False
        for array in (self.ends, self.table_starts, self.tables):
            array.flags.writeable = False

    @classmethod
    def of(
        cls,
        costs: Sequence[Sequence[float]],
        edges: Iterable[tuple[int, int, ArrayLike]] = (),
        *,
        usages: Sequence[Sequence[float]] | None = None,
        lives: Sequence[Sequence[int]] | None = None,
        limit: float | None = None,
    ) -> Assignment:
        """An assignment problem from lists.

        costs: costs of each node's choices.
        edges: for each edge its two nodes and its table.
        Without usages no choice takes memory. Without lives all nodes are live at the
        same time.
        """
        listed = list(edges)
        lengths = [len(c) for c in costs]
        if usages is not None and [len(u) for u in usages] != lengths:
            raise AssignmentError(
                "usages and costs differ in length: give one of each per choice"
            )
        num_costs = sum(lengths)
        tables = [np.ravel(np.asarray(table, float)) for _, _, table in listed]
        return cls(
            starts_of(lengths),
            flat(costs, num_costs),
            np.zeros(num_costs) if usages is None else flat(usages, num_costs),
            np.array([(0, 1)] * len(lengths) if lives is None else lives, np.int64)
            .reshape(-1, 2),
            np.array([e[:2] for e in listed], np.int64).reshape(-1, 2),
            starts_of([t.size for t in tables]),
            np.concatenate(tables) if tables else np.zeros(0),
            limit,
        )  # fmt: skip

    @property
    def num_nodes(self) -> int:
        return len(self.starts) - 1

    def __str__(self) -> str:
        limit = "no limit" if self.limit is None else f"limit {self.limit:g}"
        return (
            f"assignment of {self.num_nodes} nodes, {len(self.ends)} edges, "
            f"{len(self.costs)} choices, {limit}"
        )

    def cost(self, choices: Choices) -> float:
        """Cost of taking these choices, one per node: the sum over nodes and edges.

        It is infinite if a choice or a pair of choices is forbidden.
        """
        x = self._checked(choices)
        one, two = self.ends[:, 0], self.ends[:, 1]
        widths = np.diff(self.starts)
        pairs = self.table_starts[:-1] + x[one] * widths[two] + x[two]
        return float(self.costs[self.starts[:-1] + x].sum() + self.tables[pairs].sum())

    def usage(self, choices: Choices) -> tuple[Ints, Floats]:
        """Times at which the memory in use changes, and the memory from each on."""
        use = self.usages[self.starts[:-1] + self._checked(choices)]
        live = self.lives[:, 0] < self.lives[:, 1]
        times, at = np.unique(self.lives[live].T, return_inverse=True)
        changes = np.concatenate([use[live], -use[live]])
        summed = np.bincount(at.ravel(), changes, minlength=len(times))
        return times, np.cumsum(summed)

    def peak(self, choices: Choices) -> float:
        """The largest memory in use at any time with these choices."""
        return float(max(self.usage(choices)[1], default=0.0))

    def is_feasible(self, choices: Choices) -> bool:
        """Whether these choices fit into the memory limit and none is forbidden."""
        fits = self.limit is None or self.peak(choices) <= self.limit
        return fits and self.cost(choices) < np.inf

    def _checked(self, choices: Choices) -> Ints:
        x = np.asarray(choices, np.int64)
        if x.shape != (self.num_nodes,):
            raise AssignmentError(
                f"{len(x)} choices for {self.num_nodes} nodes: give one for each"
            )
        wrong = np.flatnonzero((x < 0) | (x >= np.diff(self.starts)))
        if len(wrong):
            node = wrong[0]
            count = self.starts[node + 1] - self.starts[node]
            raise AssignmentError(f"node {node} has {count} choices, got {x[node]}")
        return x


def flat(rows: Sequence[Sequence[float]], size: int) -> Floats:
    """The numbers in a list of lists, as one flat array. size: how many there are."""
    return np.fromiter(chain.from_iterable(rows), np.float64, size)


def _check_nodes(problem: Assignment) -> None:
    starts, num_nodes = problem.starts, problem.num_nodes
    if num_nodes < 1 or starts[0] != 0 or np.any(np.diff(starts) < 1):
        raise AssignmentError(
            "an assignment needs at least one node, and each node at least one choice"
        )
    if not len(problem.costs) == len(problem.usages) == starts[-1]:
        raise AssignmentError(
            f"{len(problem.costs)} costs and {len(problem.usages)} usages for "
            f"{starts[-1]} choices: give one of each"
        )
    if problem.lives.shape != (num_nodes, 2):
        raise AssignmentError(
            f"lives of {len(problem.lives)} nodes for {num_nodes}: give one pair each"
        )
    _check_numbers(problem.costs, "cost", -np.inf)
    _check_numbers(problem.usages, "usage", 0)
    if np.any(np.isinf(problem.usages)):
        raise AssignmentError(
            "a usage is infinite: forbid a choice by its cost instead"
        )
    if problem.limit is not None and not problem.limit >= 0:
        raise AssignmentError(f"usage limit {problem.limit}: give a number from 0 on")


def _check_edges(problem: Assignment) -> None:
    ends, widths = problem.ends, np.diff(problem.starts)
    if ends.size and (ends.min() < 0 or ends.max() >= problem.num_nodes):
        raise AssignmentError(
            f"an edge names node {ends.min() if ends.min() < 0 else ends.max()} "
            f"of {problem.num_nodes}"
        )
    wanted = widths[ends[:, 0]] * widths[ends[:, 1]]
    wrong = np.flatnonzero(np.diff(problem.table_starts) != wanted)
    if len(wrong):
        edge = wrong[0]
        got = problem.table_starts[edge + 1] - problem.table_starts[edge]
        raise AssignmentError(
            f"edge {edge} between nodes {ends[edge, 0]} and {ends[edge, 1]} has {got} "
            f"costs, wanted {wanted[edge]}: one for each pair of choices"
        )
    _check_numbers(problem.tables, "edge cost", -np.inf)


def _check_numbers(numbers: Floats, what: str, least: float) -> None:
    bad = np.flatnonzero(~(numbers >= least) | (numbers == -np.inf))
    if len(bad):
        wanted = "a number" if least < 0 else "a number from 0 on"
        raise AssignmentError(f"{what} {numbers[bad[0]]}: give {wanted}")
