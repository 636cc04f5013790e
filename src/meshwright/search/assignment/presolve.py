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


def merge(problem: Assignment) -> tuple[Kernel, Memory]:
    """The kernel in which followers are merged and no more, and its memory; quick.

    Raises AssignmentError where nothing is allowed, or nothing fits.
    """
    return with_memory(problem, merge_followers(Kernel.whole(problem)))


def presolve(problem: Assignment, kernel: Kernel | None) -> tuple[Kernel, Memory]:
    """A smaller kernel with an optimum of the kernel of a problem, and its memory.

    Raises AssignmentError where there is no kernel, or nothing of it fits.
    """
    kernel, memory = with_memory(problem, kernel)
    for _ in range(_ROUNDS):
        before = kernel.starts[-1], np.isfinite(kernel.tables).sum()
        kept, tables = drop_dominated(kernel, memory)
        kept &= fitting(kernel, memory)
        smaller = merge_followers(replace(kernel, tables=tables), kept)
        kernel, memory = with_memory(problem, smaller)
        after = kernel.starts[-1], np.isfinite(kernel.tables).sum()
        if after[0] > _WORTH * before[0] and after[1] > _WORTH * before[1]:
            break
    return kernel, memory


def with_memory(problem: Assignment, kernel: Kernel | None) -> tuple[Kernel, Memory]:
    """A kernel and its memory; AssignmentError where there is none, or nothing fits."""
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
    return kernel, memory
