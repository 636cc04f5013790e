"""Reduced problem: the assignment problem after presolve, and the map back to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.search.arrays import Bools, Floats, Ints
from meshwright.search.assignment.problem.assignment import Assignment


@dataclass(frozen=True, slots=True, eq=False)
class ReducedProblem:
    """Nodes that represent groups of original nodes, with at most one edge per pair.

    starts, costs, ends, table_starts, tables: as in `Assignment`
    owner: the reduced node that represents each original node, [N]
    pick_starts, picks: for each original node, its choice under each choice of its owner;
        flat, with the start of each node
    """

    starts: Ints
    costs: Floats
    ends: Ints
    table_starts: Ints
    tables: Floats
    owner: Ints
    pick_starts: Ints
    picks: Ints

    @classmethod
    def whole(cls, problem: Assignment) -> ReducedProblem:
        """The whole problem, in which each node represents itself."""
        widths = np.diff(problem.starts)
        return cls(
            problem.starts.copy(),  # a copy: numba types read-only arrays apart
            problem.costs.copy(),
            problem.ends.copy(),
            problem.table_starts.copy(),
            problem.tables.copy(),
            np.arange(problem.num_nodes),
            problem.starts.copy(),
            np.arange(problem.starts[-1]) - np.repeat(problem.starts[:-1], widths),
        )

    @property
    def num_nodes(self) -> int:
        return len(self.starts) - 1

    @property
    def widths(self) -> Ints:
        """Number of choices of each node."""
        return np.diff(self.starts)

    @property
    def penalty(self) -> float:
        """A finite cost for forbidden pairs, above any difference between solutions."""
        finite = self.tables[self.tables < np.inf]
        return 10 * float(np.abs(self.costs).sum() + np.abs(finite).sum()) + 1

    def lift(self, choices: Ints) -> Ints:
        """Choices of the original nodes."""
        return self.picks[self.pick_starts[:-1] + choices[self.owner]]

    def nearest(self, choices: Ints) -> Ints:
        """Choices under which most original nodes of each group choose as given."""
        agree = self.picks == np.repeat(choices, np.diff(self.pick_starts))
        widths = self.widths[self.owner]
        steps = np.arange(len(self.picks)) - np.repeat(self.pick_starts[:-1], widths)
        at = np.repeat(self.starts[:-1][self.owner], widths) + steps
        votes = np.bincount(at, agree, minlength=len(self.costs))
        pairs = zip(self.starts[:-1], self.starts[1:], strict=True)
        return np.array([np.argmax(votes[a:b]) for a, b in pairs], np.int64)

    def cost(self, choices: Ints) -> float:
        """Cost of the choices; equal to the original cost of the lifted choices."""
        one, two = self.ends[:, 0], self.ends[:, 1]
        pairs = self.table_starts[:-1] + choices[one] * self.widths[two] + choices[two]
        return float(
            self.costs[self.starts[:-1] + choices].sum() + self.tables[pairs].sum()
        )


def all_kept(reduced: ReducedProblem) -> Bools:
    """A mask of all choices that are not forbidden."""
    return reduced.costs < np.inf
