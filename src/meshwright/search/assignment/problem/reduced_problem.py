"""What presolve leaves of a problem: fewer nodes, and the way back to the original."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.search.arrays import Bools, Floats, Ints
from meshwright.search.assignment.problem.assignment import Assignment


@dataclass(frozen=True, slots=True, eq=False)
class ReducedProblem:
    """Nodes that stand for groups of original ones; at most one edge for each pair.

    starts, costs, ends, table_starts, tables: as in `Assignment`
    owner: the kernel's node that decides on each original node, [N]
    pick_starts, picks: for each original node, its choice under each of its owner's
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
        """The problem itself: each node decides on itself."""
        widths = np.diff(problem.starts)
        return cls(
            problem.starts.copy(),  # copies can be written, so have the type of the rest
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
        """More than any allowed solution can cost beyond any other."""
        finite = self.tables[self.tables < np.inf]
        return 10 * float(np.abs(self.costs).sum() + np.abs(finite).sum()) + 1

    def lift(self, choices: Ints) -> Ints:
        """The original nodes' choices."""
        return self.picks[self.pick_starts[:-1] + choices[self.owner]]

    def nearest(self, choices: Ints) -> Ints:
        """Of each node the choice under which most original ones choose as given."""
        agree = self.picks == np.repeat(choices, np.diff(self.pick_starts))
        widths = self.widths[self.owner]
        steps = np.arange(len(self.picks)) - np.repeat(self.pick_starts[:-1], widths)
        at = np.repeat(self.starts[:-1][self.owner], widths) + steps
        votes = np.bincount(at, agree, minlength=len(self.costs))
        pairs = zip(self.starts[:-1], self.starts[1:], strict=True)
        return np.array([np.argmax(votes[a:b]) for a, b in pairs], np.int64)

    def cost(self, choices: Ints) -> float:
        """Equal to the original cost of the lifted choices."""
        one, two = self.ends[:, 0], self.ends[:, 1]
        pairs = self.table_starts[:-1] + choices[one] * self.widths[two] + choices[two]
        return float(
            self.costs[self.starts[:-1] + choices].sum() + self.tables[pairs].sum()
        )


def starts_of(lengths: Ints) -> Ints:
    """Where pieces of these lengths start one behind the other, and the end."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def choice_owners(starts: Ints) -> Ints:
    """The node of each choice."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def all_kept(reduced: ReducedProblem) -> Bools:
    """A mask of choices that keeps all but the forbidden."""
    return reduced.costs < np.inf
