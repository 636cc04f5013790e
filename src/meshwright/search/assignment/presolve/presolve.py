"""Presolve: merge nodes, drop choices that do not fit or are dominated, in rounds."""

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

_ROUNDS = 12  # later rounds remove single pairs only
_WORTH = 0.985  # share of choices or pairs left, below which another round follows


def merge(problem: Assignment) -> tuple[ReducedProblem, MemoryRows]:
    """The problem with followers merged, and its memory rows: the quick part of presolve.

    Raises AssignmentError if every solution is forbidden or exceeds memory.
    """
    return with_memory(problem, merge_followers(ReducedProblem.whole(problem)))


def presolve(
    problem: Assignment, reduced: ReducedProblem | None
) -> tuple[ReducedProblem, MemoryRows]:
    """A smaller problem that keeps an optimal solution, and its memory rows.

    Raises AssignmentError if `reduced` is `None` (infeasible), or nothing fits.
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
    """A reduced problem with its memory rows; AssignmentError if it is infeasible."""
    if reduced is None:
        raise AssignmentError(
            "no solution: costs forbid all combinations of choices that fit into memory"
        )
    memory = memory_of(problem, reduced)
    missing = shortfall(memory)
    if missing > 0:
        raise AssignmentError(
            f"no solution fits: every one takes at least {missing:g} more than "
            f"the usage limit of {problem.limit:g}"
        )
    return reduced, memory
