"""Change of the costs of functions by a policy, with confidence intervals."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meshwright.features.policies.compiler.registers.costs import (
    FunctionCost,
    is_less,
)

_CONFIDENT = 1.96
"""Standard errors on both sides of a mean that have 95 % confidence."""

_RESAMPLES = 2000

_OPERATIONS = 10.0
"""Weight of the change of micro-operations beside that of spill code in the goal. Spill
code is about a tenth of what a function runs, so that both are of one size."""


@dataclass(frozen=True, slots=True)
class FunctionChange:
    """A cost of one call of a function, without and with a policy."""

    project: str
    default: float
    policy: float


@dataclass(frozen=True, slots=True)
class CostChange:
    """The change of a cost over functions, as shares: -0.01 is 1 % less.

    mean: geometric mean over functions of (policy + 1) / (default + 1), less 1; low, high:
        its interval with 95 % confidence.
    total: change of the sum; total_low, total_high: its interval with 95 %
        confidence, by resampling functions. Few functions with deep loops have most of it.
    better, worse: numbers of functions that cost less and more.
    """

    functions: int
    default_sum: float
    policy_sum: float
    mean: float
    low: float
    high: float
    total: float
    total_low: float
    total_high: float
    better: int
    worse: int


def log_change(function: FunctionChange) -> float:
    """The logarithm of the ratio of costs, each with one more for the call itself."""
    return math.log((function.policy + 1) / (function.default + 1))


def cost_change(functions: Iterable[FunctionChange]) -> CostChange:
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
    return CostChange(
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


@dataclass(frozen=True, slots=True)
class FunctionCosts:
    """All costs of one call of a function, without and with a policy."""

    project: str
    default: FunctionCost
    policy: FunctionCost

    @property
    def kept(self) -> "FunctionCosts":
        """The costs of what a build keeps."""
        is_taken = is_less(self.policy, self.default)
        return self if is_taken else replace(self, policy=self.default)

    @property
    def cycles(self) -> FunctionChange:
        """The change of spill code."""
        return FunctionChange(self.project, self.default.cycles, self.policy.cycles)

    @property
    def operations(self) -> FunctionChange:
        """The change of all that the function runs."""
        before, after = self.default.operations, self.policy.operations
        return FunctionChange(self.project, before, after)


@dataclass(frozen=True, slots=True)
class CostChanges:
    """Changes of modelled cycles of spill code, and of all micro-operations.

    kept_cycles, kept_operations: of a build, which takes from the policy only functions
        that it makes better.
    """

    cycles: CostChange
    operations: CostChange
    kept_cycles: CostChange
    kept_operations: CostChange


def cost_changes(functions: Iterable[FunctionCosts]) -> CostChanges:
    """The changes over functions; 0 where there are none."""
    members = list(functions)
    kept = [each.kept for each in members]
    return CostChanges(
        cost_change(each.cycles for each in members),
        cost_change(each.operations for each in members),
        cost_change(each.cycles for each in kept),
        cost_change(each.operations for each in kept),
    )


def log_changes(functions: Iterable[FunctionCosts]) -> NDArray[np.float64]:
    """[N, 2], logarithms of the changes of spill code and of operations."""
    return np.array(
        [(log_change(each.cycles), log_change(each.operations)) for each in functions]
    )


def goals(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """[N], the sum of changes that training makes less."""
    return logs[:, 0] + _OPERATIONS * logs[:, 1]


def is_better(functions: Sequence[FunctionCosts]) -> bool:
    """Whether a policy is better than the compiler, by 95 % confidence."""
    if len(functions) < 2:
        return False
    sums = goals(log_changes(functions))
    error = sums.std() / np.sqrt(len(sums))
    return bool(sums.mean() + _CONFIDENT * error < 0)
