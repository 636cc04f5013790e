"""Change of the spill code of functions by a policy, with confidence intervals."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

_CONFIDENT = 1.96
"""Standard errors on both sides of a mean that have 95 % confidence."""

_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class FunctionCycles:
    """Modelled cycles of spill code in a call of a function, without and with a policy."""

    project: str
    default: float
    policy: float


@dataclass(frozen=True, slots=True)
class SpillChange:
    """The change of spill code over functions, as shares: -0.01 is 1 % less.

    mean: geometric mean over functions of (policy + 1) / (default + 1) cycles, less 1; low,
        high: its interval with 95 % confidence.
    total: change of the sum of cycles; total_low, total_high: its interval with 95 %
        confidence, by resampling functions. Few functions with deep loops have most of it.
    better, worse: numbers of functions with fewer and with more cycles.
    """

    functions: int
    default_cycles: float
    policy_cycles: float
    mean: float
    low: float
    high: float
    total: float
    total_low: float
    total_high: float
    better: int
    worse: int


def log_change(function: FunctionCycles) -> float:
    """The logarithm of the ratio of cycles, each with one more for the call itself."""
    return math.log((function.policy + 1) / (function.default + 1))


def spill_change(functions: Iterable[FunctionCycles]) -> SpillChange:
    """The change over functions; 0 where there are none."""
    members = list(functions)
    number = len(members)
    logs = np.array([log_change(each) for each in members] or [0.0])
    error = (
        _CONFIDENT * float(logs.std(ddof=1)) / math.sqrt(number) if number > 1 else 0
    )
    mean = float(logs.mean())
    default = np.array([each.default for each in members] or [0.0])
    policy = np.array([each.policy for each in members] or [0.0])
    draws = np.random.default_rng(0).integers(0, len(logs), (_RESAMPLES, len(logs)))
    totals = policy[draws].sum(1) / np.maximum(default[draws].sum(1), 1e-9) - 1
    low, high = np.quantile(totals, (0.025, 0.975)) if default.any() else (0.0, 0.0)
    return SpillChange(
        number,
        float(default.sum()),
        float(policy.sum()),
        math.expm1(mean),
        math.expm1(mean - error),
        math.expm1(mean + error),
        float(policy.sum() / default.sum() - 1) if default.any() else 0.0,
        float(low),
        float(high),
        int((logs < -1e-9).sum()),
        int((logs > 1e-9).sum()),
    )
