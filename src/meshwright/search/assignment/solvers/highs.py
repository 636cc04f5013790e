"""HiGHS (by way of SciPy) on integer programs: an engine, and a baseline."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from meshwright.search.arrays import Ints
from meshwright.search.assignment.incumbent.incumbent import Incumbent
from meshwright.search.assignment.problem.assignment import Assignment
from meshwright.search.assignment.solvers.linear import (
    IntegerProgram,
    chosen,
    linearise,
    linearise_kernel,
)

_CHILD = Path(__file__).with_name("highs_child.py")
_SPARE_S = 0.7  # for its answer to arrive before time is up


def solve_highs(problem: Assignment, budget_s: float) -> tuple[Ints | None, float]:
    """The best choices found, None if none, and a lower bound of the cost.

    The time of building the model counts.
    """
    from meshwright.search.assignment.solvers.highs_child import minimise

    start_s = time.perf_counter()
    parts = _parts(linearise(problem))
    left_s = budget_s - (time.perf_counter() - start_s)
    if left_s <= 0:
        return None, -np.inf
    values, bound = minimise(parts, left_s)
    return None if values is None else chosen(problem.starts, values), bound


class HighsProof:
    """HiGHS on a kernel, in a process of its own; it tells what it found at the end."""

    def __init__(self, pool: Incumbent) -> None:
        self.pool = pool
        self.parts = _parts(linearise_kernel(pool.reduced, pool.memory))
        self.child: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Wait for the optimum, or for what is known when time is nearly up."""
        left_s = self.pool.clock.left_s - _SPARE_S
        if left_s <= 1:
            return
        self.child = subprocess.Popen(
            [sys.executable, str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us alone
        )
        told, _ = self.child.communicate(pickle.dumps((self.parts, left_s)))
        if not told or self.child.returncode != 0:
            return
        values, bound = pickle.loads(told)
        if values is not None:
            self.pool.offer(chosen(self.pool.reduced.starts, values))
        slack = 1e-6 * abs(bound)  # its tolerance
        self.pool.raise_bound(bound - slack)

    def stop(self) -> None:
        """End the process."""
        if self.child is not None and self.child.poll() is None:
            self.child.kill()


def _parts(linear: IntegerProgram) -> tuple[Any, ...]:
    return tuple(getattr(linear, field.name) for field in fields(linear))
