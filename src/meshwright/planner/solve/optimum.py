"""The solution of a mesh's integer program, and the comparison of such solutions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

NEAR_SMALLEST = 1.01
"""Largest ratio of bytes to the fewest bytes of a plan that counts as smallest."""


type Choices = tuple[int, ...]
"""The number of the choice taken for each variable of an integer program."""


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best choices found for all variables of an integer program.

    seconds: predicted time of a step.
    bytes: predicted peak memory of a device.
    bound: lower bound on the seconds of all choices that fit into memory.
    unlimited: the best choices regardless of memory, if these do not fit.
    """

    choices: Choices
    seconds: float
    bytes: float
    bound: float
    unlimited: Choices | None = None


class TimeAndMemory(Protocol):
    """A plan with a step time in seconds and a peak memory in bytes."""

    @property
    def seconds(self) -> float: ...
    @property
    def bytes(self) -> float: ...


def best_within[S: TimeAndMemory](plans: Sequence[S], limit: float) -> S:
    """The fastest plan of at most `limit` bytes.

    If none fits, the fastest of the plans whose bytes are at most `NEAR_SMALLEST` times
    the fewest.
    """
    smallest = min(plan.bytes for plan in plans)
    most = limit if smallest <= limit else NEAR_SMALLEST * smallest
    return min((p for p in plans if p.bytes <= most), key=lambda p: p.seconds)
