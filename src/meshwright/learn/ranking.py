"""Measures of a ranking of configurations by scores.

Scores are predictions of which only the order counts; a lower score means faster.
Reference: Phothilimthana et al., NeurIPS 2023.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

TOP_KS = (1, 5, 10)

Floats = NDArray[np.floating[Any]]


def top_error(scores: Floats, times: Floats, k: int) -> float:
    """E_K: how much slower than the best configuration the best of the top K is.

    The top K are the K with the lowest scores. The result is a ratio minus 1. Ties of
    scores keep the given order.
    """
    chosen = np.argsort(scores, kind="stable")[:k]
    best = times.min()
    return float((times[chosen].min() - best) / best)


def kendall_tau(scores: Floats, times: Floats) -> float:
    """Kendall's tau-b between scores and times, from -1 to 1; 0 if either is constant."""
    result: Any = kendalltau(scores, times)
    tau = float(result.statistic)
    return 0.0 if math.isnan(tau) else tau


def ordered_pair_accuracy(scores: Floats, times: Floats) -> float:
    """OPA: the share of pairs with different times that the scores put in the same order.

    Pairs of equal scores count as wrong. Without ties it is (tau + 1) / 2.
    """
    slower = times[:, None] > times[None, :]
    right = slower & (scores[:, None] > scores[None, :])
    return float(right.sum() / slower.sum()) if slower.any() else 1.0


def noise_ceiling(pass_ns: Sequence[Sequence[int]]) -> float:
    """The mean Kendall's tau between two passes of measurements of the same configurations.

    No ranking can be expected to be better than that. pass_ns: nanoseconds, one list
    per pass.
    """
    passes = [np.array(times, np.float64) for times in pass_ns]
    if len(passes) < 2:
        return math.nan
    pairs = itertools.combinations(passes, 2)
    return float(np.mean([kendall_tau(a, b) for a, b in pairs]))


@dataclass(frozen=True, slots=True)
class Ranking:
    """The quality of a ranking of one graph's configurations, or means over graphs.

    top_errors: E_K by K.
    """

    top_errors: Mapping[int, float]
    tau: float
    opa: float

    @classmethod
    def of(cls, scores: Floats, times: Floats) -> Ranking:
        errors = {k: top_error(scores, times, k) for k in TOP_KS}
        return cls(
            errors, kendall_tau(scores, times), ordered_pair_accuracy(scores, times)
        )

    @classmethod
    def mean(cls, rankings: Sequence[Ranking]) -> Ranking:
        """The mean of each metric over graphs."""
        errors = {
            k: float(np.mean([ranking.top_errors[k] for ranking in rankings]))
            for k in TOP_KS
        }
        taus = [ranking.tau for ranking in rankings]
        opas = [ranking.opa for ranking in rankings]
        return cls(errors, float(np.mean(taus)), float(np.mean(opas)))

    def __str__(self) -> str:
        errors = "  ".join(f"E_{k} {self.top_errors[k]:.4f}" for k in TOP_KS)
        return f"{errors}  tau {self.tau:.4f}  OPA {self.opa:.4f}"

    def to_json(self) -> dict[str, float]:
        errors = {f"top_{k}_error": self.top_errors[k] for k in TOP_KS}
        return {**errors, "tau": self.tau, "opa": self.opa}
