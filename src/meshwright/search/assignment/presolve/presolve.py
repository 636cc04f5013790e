"""Presolve: merge followers, drop what does not fit or is dominated, until all stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from meshwright.errors import AssignmentError
from meshwright.search.assignment.presolve.dominate import drop_dominated
from meshwright.search.assignment.presolve.merge import merge_followers
from meshwright.search.assignment.problem.assignment import Assignment
from meshwright.search.assignment.problem.memory_rows import (
    MemoryRows,
    fitting,
    memory_of,
    shortfall,
)
from meshwright.search.assignment.problem.reduced_problem import ReducedProblem

_ROUNDS = 12  # later ones drop single pairs
_WORTH = 0.985  # of the choices or pairs: another round if fewer are left


def merge(problem: Assignment) -> tuple[ReducedProblem, MemoryRows]:
    """The kernel in which followers are merged and no more, and its memory; quick.

    Raises AssignmentError where nothing is allowed, or nothing fits.
    """
    return with_memory(problem, merge_followers(ReducedProblem.whole(problem)))


def presolve(
    problem: Assignment, reduced: ReducedProblem | None
) -> tuple[ReducedProblem, MemoryRows]:
    """A smaller kernel with an optimum of the kernel of a problem, and its memory.

    Raises AssignmentError where there is no kernel, or nothing of it fits.
    """
    reduced, memory = with_memory(problem, reduced)
    for _ in range(_ROUNDS):
        before = reduced.starts[-1], np.isfinite(reduced.tables).sum()
        kept, tables = drop_dominated(reduced, memory)
        kept &= fitting(reduced, memory)
        smaller = merge_followers(replace(reduced, tables=tables), kept)
        reduced, memory = with_memory(problem, smaller)
        after = reduced.starts[-1], np.isfinite(reduced.tables).sum()
        if after[0] > _WORTH * before[0] and after[1] > _WORTH * before[1]:
            break
    return reduced, memory


def with_memory(
    problem: Assignment, reduced: ReducedProblem | None
) -> tuple[ReducedProblem, MemoryRows]:
    """A kernel and its memory; AssignmentError where there is none, or nothing fits."""
    if reduced is None:
        raise AssignmentError(
            "no solution: costs forbid all combinations of choices that could fit"
        )
    memory = memory_of(problem, reduced)
    missing = shortfall(memory)
    if missing > 0:
        raise AssignmentError(
            f"no solution fits: every one takes at least {missing:g} more than "
            f"the usage limit of {problem.limit:g}"
        )
    return reduced, memory
