"""The search problem of moving single ops between chips, for the engines of `search`.

A state is an assignment of ops to chips. The constraint solver makes it valid before
its bottleneck is computed.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshwright.features.chips.problem.chip_problem import ChipProblem
from meshwright.search import Annealing, Budget, Result, search
from meshwright.search.arrays import Ints


@dataclass(frozen=True, slots=True, eq=False)
class ChipMoves:
    """The search problem of moving ops, one at a time, from a valid partition.

    A state is the bytes of an int64 array [N]: the chip of each op, before the
    constraint solver makes it valid. Action op * C + chip moves an op to a chip.
    """

    problem: ChipProblem
    begin: Ints

    def start(self) -> bytes:
        """The assignment from which the search begins."""
        return self.begin.astype(np.int64).tobytes()

    def actions(self, state: bytes) -> Sequence[int]:
        """All moves of each op to each chip.

        A move to the op's own chip changes nothing.
        """
        del state
        problem = self.problem
        return range(problem.graph.num_ops * problem.module.num_chips)

    def apply(self, state: bytes, action: int) -> bytes:
        """The assignment after a move."""
        op, chip = divmod(action, self.problem.module.num_chips)
        at = 8 * op
        return state[:at] + chip.to_bytes(8, sys.byteorder) + state[at + 8 :]

    def repaired(self, state: bytes) -> Ints:
        """A valid partition near an assignment of ops to chips."""
        return self.problem.repaired(np.frombuffer(state, np.int64), self.begin)

    def cost(self, state: bytes) -> float:
        """The bottleneck of the repaired assignment in seconds.

        It is infinite if the memory of a chip overflows.
        """
        return self.problem.load(self.repaired(state)).cost

    def key(self, state: bytes) -> Hashable:
        """The key by which the search recognizes equal states: the state itself."""
        return state


def anneal(
    problem: ChipProblem, begin: Ints, seed: int, budget: Budget
) -> tuple[Ints, Result[bytes, int]]:
    """The best partition that simulated annealing finds, and the record of its search.

    It starts from the valid partition `begin`. A sequence of moves has at most as many
    moves as there are ops, which reach any assignment. A budget of evaluations limits
    the trials, too, since some trials repeat known assignments.
    """
    moves = ChipMoves(problem, begin)
    if budget.evaluations is not None and budget.trials is None:
        budget = replace(budget, trials=_TRIALS * budget.evaluations)
    result = search(moves, Annealing(seed, longest=problem.graph.num_ops), budget)
    return moves.repaired(result.state), result


_TRIALS = 20
"""Largest number of trials for each evaluation of a budget."""


def random_start(problem: ChipProblem, rng: np.random.Generator) -> Ints:
    """A valid partition near a uniformly random assignment of ops to chips."""
    chips = problem.module.num_chips
    return problem.repaired(rng.integers(0, chips, problem.graph.num_ops))
