"""How long a search may go on, and what it has to show for it."""

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
"""Why a search ended: nothing is left to try; nothing new turned up for long; one of its
three limits; a Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a search, whichever is reached first; `None` is no limit.

    An evaluation prices a state that was never priced before. A trial looks at a
    candidate, known or not: in a tree search, a trajectory. `clock` tells seconds.
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
    """A cost below all before it, and when it was found; both counts start at one."""

    cost: float
    evaluation: int
    trial: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Result[S, A]:
    """The best state found, and the actions that lead there from the start.

    cost: that of `state`; infinite if nothing usable was found, `state` then being the
      start.
    evaluations: distinct states that were priced.
    trials: candidates that were looked at, those already priced among them.
    is_complete: no state that can be reached costs less.
    improvements: costs that were the lowest of all when they were found, in order.
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
        """Whether a state was found that can be used."""
        return math.isfinite(self.cost)

    def __str__(self) -> str:
        how, num = "complete" if self.is_complete else self.stopped, len(self.actions)
        return (
            f"cost {self.cost:.6g} after {num} action{'s' * (num != 1)};"
            f" {self.evaluations} evaluations in {self.seconds:.2f} s, {how}"
        )
