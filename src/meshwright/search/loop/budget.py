"""Budgets and results of a search."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from meshwright.errors import SearchError

type Stopped = Literal[
    "exhausted", "stalled", "evaluations", "trials", "seconds", "interrupted"
]
"""Reason for the end of a search: no state left, no new state for long (patience), one of
the three limits of the budget, or Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a search; the first one reached ends it, `None` is no limit.

    seconds: wall time on `clock`.
    evaluations: states priced for the first time.
    trials: candidates looked at, new or not; in a tree search, trajectories.
    """

    seconds: float | None = None
    evaluations: int | None = None
    trials: int | None = None
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        for name in ("seconds", "evaluations", "trials"):
            limit = getattr(self, name)
            if limit is not None and not limit > 0:
                raise SearchError(
                    f"a budget of {limit} {name} leaves nothing to do;"
                    f" it has to be above zero, or None for no limit"
                )


@dataclass(frozen=True, slots=True)
class Improvement:
    """A new lowest cost, and when it was found; both counts start at one."""

    cost: float
    evaluation: int
    trial: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Result[S, A]:
    """The best state found, and the actions that lead there from the start.

    cost: cost of `state`; infinite if no feasible state was found, and `state` is then
        the start.
    evaluations: number of distinct states priced.
    trials: number of candidates looked at, those priced before included.
    is_complete: whether every reachable state was priced, so none costs less.
    improvements: each new lowest cost, in order.
    """

    state: S
    cost: float
    actions: tuple[A, ...]
    evaluations: int
    trials: int
    seconds: float
    stopped: Stopped
    is_complete: bool
    improvements: tuple[Improvement, ...]

    @property
    def is_feasible(self) -> bool:
        """Whether a feasible state was found."""
        return math.isfinite(self.cost)

    def __str__(self) -> str:
        how, num = "complete" if self.is_complete else self.stopped, len(self.actions)
        return (
            f"cost {self.cost:.6g} after {num} action{'s' * (num != 1)};"
            f" {self.evaluations} evaluations in {self.seconds:.2f} s, {how}"
        )
