"""The roofline: a kernel takes as long as the resource that needs longest for it.

Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for
multicore architectures" (CACM 2009). The simulator asks for the binding resource of one
kernel (`binding_time`), the planner for the seconds of many sharding choices at once
(`roofline_s`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from meshwright.machine import Chip


class Bound(Enum):
    """The resource that limits a kernel."""

    MATRIX = "matrix"
    VECTOR = "vector"
    MEMORY = "memory"
    LAUNCH = "launch"


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Seconds of a kernel, and what bounds it."""

    seconds: float
    bound: Bound


def binding_time(times: Mapping[Bound, float]) -> KernelTime:
    """The longest of the times and its bound; the first one where several are equal."""
    bound = max(times, key=lambda b: times[b])
    return KernelTime(times[bound], bound)


def roofline_s(*times: float | NDArray[np.float64]) -> NDArray[np.float64]:
    """The longest of the seconds in each resource, element by element."""
    return reduce(np.maximum, times)  # pyright: ignore[reportReturnType]


def calibrated_efficiency(chip: Chip, name: str, size: float) -> float:
    """Share of a peak that work reaches; `name` is its class, `size` its amount."""
    curve = chip.efficiency.get(name)
    return 1.0 if curve is None or size <= 0 else curve.share(size)
