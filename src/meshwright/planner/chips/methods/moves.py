"""The search problem of moves of single ops, for the engines of `search`.

A state is an assignment of ops to chips. The constraint solver repairs it before it is
priced.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshwright.planner.chips.problem.chip_problem import ChipProblem
from meshwright.search import Annealing, Budget, Result, search
from meshwright.search.arrays import Ints


@dataclass(frozen=True, slots=True, eq=False)
class ChipMoves:
    """The search problem of an assignment that starts from a valid one.

    A state is the bytes of an array [N] of int64, an assignment before its repair;
    action op * C + chip is a move.
    """

    problem: ChipProblem
    begin: Ints

    def start(self) -> bytes:
        """The assignment from which the search begins."""
        return self.begin.astype(np.int64).tobytes()

    def actions(self, state: bytes) -> Sequence[int]:
        """Every move of every op; a move to its own chip changes nothing."""
        del state
        problem = self.problem
        return range(problem.graph.num_ops * problem.module.num_chips)

    def apply(self, state: bytes, action: int) -> bytes:
        """The assignment after a move."""
        op, chip = divmod(action, self.problem.module.num_chips)
        at = 8 * op
        return state[:at] + chip.to_bytes(8, sys.byteorder) + state[at + 8 :]

    def repaired(self, state: bytes) -> Ints:
        """The valid partition near an assignment."""
        return self.problem.repaired(np.frombuffer(state, np.int64), self.begin)

    def cost(self, state: bytes) -> float:
        """The bottleneck after the repair, in seconds; infinite if a memory overflows."""
        return self.problem.load(self.repaired(state)).cost

    def key(self, state: bytes) -> Hashable:
        """The key by which the search recognizes equal states: the state itself."""
        return state


def anneal(
    problem: ChipProblem, begin: Ints, seed: int, budget: Budget
) -> tuple[Ints, Result[bytes, int]]:
    """The best partition of simulated annealing from a valid one, and its search.

    A trajectory has at most as many moves as there are ops, which reach any assignment.
    A budget of evaluations limits the trials, too: some meet known assignments.
    """
    moves = ChipMoves(problem, begin)
    if budget.evaluations is not None and budget.trials is None:
        budget = replace(budget, trials=_TRIALS * budget.evaluations)
    result = search(moves, Annealing(seed, longest=problem.graph.num_ops), budget)
    return moves.repaired(result.state), result


_TRIALS = 20
"""Trials for each evaluation of a budget, at most."""


def random_start(problem: ChipProblem, rng: np.random.Generator) -> Ints:
    """The repair of a uniformly random assignment."""
    chips = problem.module.num_chips
    return problem.repaired(rng.integers(0, chips, problem.graph.num_ops))
