"""Which live range gets a register first: the longest, with learned corrections."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.allocation.correction import PowerCorrection
from meshwright.features.policies.compiler.channel import Observation

_USED = ("li_size", "stage", "weight")

_ASSIGN, _SPLIT = 1, 2
"""Stages of a live range (LLVM: LiveRangeStage in RegAllocEvictionAdvisor.h)."""

_LOCAL_SLOTS = 480
"""Slots of a live range above which LLVM takes it for one of several blocks: twice the 15
integer registers of x86-64, each with the 16 slots of an instruction."""

INPUTS = 9
"""Inputs of the correction of a priority's logarithm."""


@dataclass(frozen=True, slots=True, eq=False)
class PriorityPolicy:
    """The priority of a live range; the greatest comes first.

    LLVM takes long live ranges before short ones if they are in several blocks, then those
    within one block in the order of the code, and last those that are to be split. It does
    not tell a policy which ranges are within one block. Without corrections, the longest
    range comes first: on C projects, spill code is then 0.3 % more than LLVM's in the mean
    over functions, and less than with orders that guess which ranges are local.
    """

    correction: PowerCorrection
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
        return math.log(size + 1) + float(self.correction(x)[0, 0])


def _inputs(size: float, stage: int, weight: float, number: int) -> NDArray[np.float32]:
    """[1, INPUTS], inputs of the correction."""
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
