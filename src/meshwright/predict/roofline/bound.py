"""What bounds the seconds of work on a chip, and in what part it reaches a peak."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from meshwright.machine import Chip


class Bound(Enum):
    """What a unit's time is made of."""

    MATRIX = "matrix"
    VECTOR = "vector"
    MEMORY = "memory"
    LAUNCH = "launch"


@dataclass(frozen=True, slots=True)
class UnitTime:
    """Seconds of a unit, and what bounds it."""

    seconds: float
    bound: Bound


def reached_share(chip: Chip, name: str, size: float) -> float:
    """Of a peak that work of a class and size reaches."""
    curve = chip.efficiency.get(name)
    return 1.0 if curve is None or size <= 0 else curve.share(size)
