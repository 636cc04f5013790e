"""Presolve: merge followers, drop what does not fit or is dominated, until all stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from meshwright.errors import AssignmentError
from meshwright.search.assignment.dominate import drop_dominated
from meshwright.search.assignment.kernel import Kernel
from meshwright.search.assignment.memory import Memory, fitting, memory_of, shortfall
from meshwright.search.assignment.merge import merge_followers
from meshwright.search.assignment.problem import Assignment

_ROUNDS = 12  # later ones drop single pairs
_WORTH = 0.985  # of the choices or pairs: another round if fewer are left


def presolve(problem: Assignment, *, rounds: int = _ROUNDS) -> tuple[Kernel, Memory]:
    """A kernel with an optimum of the problem, and its memory.

    Raises AssignmentError where nothing is allowed, or nothing fits.
    """
    kernel = merge_followers(Kernel.whole(problem))
    for _ in range(rounds):
        if kernel is None:
            raise AssignmentError(
                "no solution: costs forbid all combinations of choices that could fit"
            )
        memory = memory_of(problem, kernel)
        missing = shortfall(memory)
        if missing > 0:
            raise AssignmentError(
                f"no solution fits: every one takes at least {missing:g} more than "
                f"the usage limit of {problem.limit:g}"
            )
        before = kernel.starts[-1], np.isfinite(kernel.tables).sum()
        kept, tables = drop_dominated(kernel, memory)
        kept &= fitting(kernel, memory)
        kernel = merge_followers(replace(kernel, tables=tables), kept)
        if kernel is None:
            continue
        after = kernel.starts[-1], np.isfinite(kernel.tables).sum()
        if after[0] > _WORTH * before[0] and after[1] > _WORTH * before[1]:
            break
    if kernel is None:
        raise AssignmentError("no solution: nothing allowed fits into the usage limit")
    return kernel, memory_of(problem, kernel)
