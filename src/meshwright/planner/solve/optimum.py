"""A solution of a mesh's integer program, and how solutions are compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

NEAR_SMALLEST = 1.01
"""Bytes of a plan relative to the smallest up to which it counts as equally small."""


type Choices = tuple[int, ...]
"""One choice per variable of a model."""


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best choices found for all variables of a model.

    seconds: predicted time of a step. bytes: predicted peak memory of a device.
    bound: lower bound of the seconds of every choice that fits into memory.
    unlimited: the best choices regardless of memory, if these do not fit.
    """

    choices: Choices
    seconds: float
    bytes: float
    bound: float
    unlimited: Choices | None = None

    @property
    def gap(self) -> float:
        """Relative optimality gap: the share of `seconds` that may still be saved."""
        return max(0.0, 1 - self.bound / self.seconds) if self.seconds else 0.0


class TimeAndMemory(Protocol):
    """Anything with a time in seconds and a memory in bytes."""

    @property
    def seconds(self) -> float: ...
    @property
    def bytes(self) -> float: ...


def best_within[S: TimeAndMemory](plans: Sequence[S], limit: float) -> S:
    """The fastest plan of at most `limit` bytes.

    If none fits, the fastest of the plans that are within `NEAR_SMALLEST` of the
    smallest.
    """
    smallest = min(plan.bytes for plan in plans)
    most = limit if smallest <= limit else NEAR_SMALLEST * smallest
    return min((p for p in plans if p.bytes <= most), key=lambda p: p.seconds)
