"""Which live range gets a register first: LLVM's order, as far as its features tell it."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.allocation.correction import Correction
from meshwright.features.policies.compiler.channel import Observation

_USED = ("li_size", "stage", "weight")

_ASSIGN, _SPLIT = 1, 2
"""Stages of a live range (LLVM: LiveRangeStage in RegAllocEvictionAdvisor.h)."""

_LOCAL_SLOTS = 480
"""Slots of live ranges above which LLVM takes a range for global: twice the 15 integer
registers of x86-64, each with the 16 slots of an instruction."""

INPUTS = 9
"""Inputs of the network."""


@dataclass(frozen=True, slots=True, eq=False)
class PriorityPolicy:
    """The priority of a live range; the greatest comes first.

    LLVM takes global live ranges first, the longest one before others, then those within
    one block in the order of the code, and last those that are to be split. It does not
    tell which ranges are within one block: here, these are the short ones.
    """

    correction: Correction
    kind: ClassVar[str] = "priority"

    def __call__(self, call: Observation) -> float:
        """The priority of a live range."""
        try:
            size, stage, weight = (float(call.features[name][0]) for name in _USED)
        except KeyError as missing:
            raise PolicyError(
                f"this compiler has no feature {missing}, which a policy of priority"
                " reads; wanted clang 22"
            ) from None
        x = _inputs(size, int(stage), weight, call.number)
        return _heuristic(size, int(stage), call.number) + float(
            self.correction(x)[0, 0]
        )


def _heuristic(size: float, stage: int, number: int) -> float:
    """Below 1 for ranges to be split, below 2 for local ones, and below 3 for others."""
    length = size / (size + 4096)
    if stage == _SPLIT:
        return length
    if stage == _ASSIGN and size <= _LOCAL_SLOTS:
        return 2 - number / (number + 1024)
    return 2 + length


def _inputs(size: float, stage: int, weight: float, number: int) -> NDArray[np.float32]:
    """[1, INPUTS], inputs of the network."""
    endless = math.isinf(weight)
    density = 0.0 if endless else math.log(max(weight, 1e-6)) / 4
    row = (
        math.log(size + 1) / 8,
        min(size / _LOCAL_SLOTS, 2.0),
        density,
        float(endless),
        number / (number + 1024),
        float(stage == _ASSIGN),
        float(stage == _SPLIT),
        float(stage > _SPLIT),
        1.0,
    )
    return np.array([row], np.float32)
