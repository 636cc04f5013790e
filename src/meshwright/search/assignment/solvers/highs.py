"""HiGHS (through SciPy) on the linearised problem."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from meshwright.search.assignment.incumbent.incumbent import Incumbent
from meshwright.search.assignment.solvers.linear import (
    BinaryProgram,
    chosen,
    linearise_reduced,
)

_CHILD = Path(__file__).with_name("highs_child.py")
_SPARE_S = 0.7  # kept back, so that the answer arrives before the time is up


class HighsProof:
    """A run of HiGHS in a process of its own; its result is offered at the end."""

    def __init__(self, incumbent: Incumbent) -> None:
        self.incumbent = incumbent
        self.fields = program_fields(
            linearise_reduced(incumbent.reduced, incumbent.memory)
        )
        self.child: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Run until the optimum is proven or the time is nearly up; offer the result."""
        left_s = self.incumbent.clock.left_s - _SPARE_S
        if left_s <= 1:
            return
        self.child = subprocess.Popen(
            [sys.executable, "-P", str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches only the parent
        )
        answer, _ = self.child.communicate(pickle.dumps((self.fields, left_s)))
        if not answer or self.child.returncode != 0:
            return
        values, bound = pickle.loads(answer)
        if values is not None:
            self.incumbent.offer(chosen(self.incumbent.reduced.starts, values))
        slack = 1e-6 * abs(bound)  # tolerance of HiGHS
        self.incumbent.raise_bound(bound - slack)

    def stop(self) -> None:
        """End the process."""
        if self.child is not None and self.child.poll() is None:
            self.child.kill()


def program_fields(linear: BinaryProgram) -> tuple[Any, ...]:
    """Fields of an integer program, which a process can read without this package."""
    return tuple(getattr(linear, field.name) for field in fields(linear))
