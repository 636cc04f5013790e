"""The effect of a policy from an A/B comparison, without the noise of an A/A comparison.

Two groups of servers never differ by their policy alone. A third group, which changes
nothing (no-op), shows how much groups differ by chance. HALP's authors (Song et al., NSDI
2023) therefore deconvolve: the distribution of the measured difference is that of the
effect, convolved with that of the noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from meshwright.errors import PolicyError

_BATCHES = 20
"""Parts of a series whose means count as independent (batch means; Law, 1983)."""

_GRID, _ROUNDS = 101, 200
"""Effects that are told apart, and rounds of expectation maximisation."""


@dataclass(frozen=True, slots=True)
class Impact:
    """The relative effect of a policy: -0.05 are 5 % less than without it.

    effect, low, high: mean over time, and the interval that contains it with the
        probability `confidence`.
    effects, shares: the deconvolved distribution of the effect over time.
    over_time: expected effect at each time, given all measurements.
    """

    effect: float
    low: float
    high: float
    confidence: float
    effects: np.ndarray = field(repr=False, compare=False)
    shares: np.ndarray = field(repr=False, compare=False)
    over_time: np.ndarray = field(repr=False, compare=False)

    def quantile(self, share: float) -> float:
        """The effect that is not exceeded during a share of the time."""
        return float(np.interp(share, np.cumsum(self.shares), self.effects))

    def __str__(self) -> str:
        return (
            f"{self.effect:+.2%}, from {self.low:+.2%} to {self.high:+.2%} with"
            f" {self.confidence:.0%} confidence; over time from"
            f" {self.quantile(0.1):+.2%} to {self.quantile(0.9):+.2%} (10 to 90 %)"
        )


def impact(
    control: Sequence[float] | np.ndarray,
    treated: Sequence[float] | np.ndarray,
    noop_control: Sequence[float] | np.ndarray,
    noop: Sequence[float] | np.ndarray,
    *,
    confidence: float = 0.99,
) -> Impact:
    """The effect on a figure, such as missed bytes, that was measured at many times.

    control, treated: the figure of servers without and with the policy, time by time.
    noop_control, noop: that of two groups without it, which differ by chance alone.
    """
    measured = _log_ratios(control, treated, "control and treated")
    noise = _log_ratios(noop_control, noop, "noop_control and noop")
    low, mean, high = _interval(measured, noise, confidence)
    effects, shares, over_time = _deconvolve(measured - noise.mean(), noise)
    return Impact(
        effect=float(np.expm1(mean)),
        low=float(np.expm1(low)),
        high=float(np.expm1(high)),
        confidence=confidence,
        effects=np.expm1(effects),
        shares=shares,
        over_time=np.expm1(over_time),
    )


def _log_ratios(
    below: Sequence[float] | np.ndarray, above: Sequence[float] | np.ndarray, what: str
) -> np.ndarray:
    """The logarithms of the quotients of two series."""
    one, other = np.asarray(below, float), np.asarray(above, float)
    if one.ndim != 1 or one.shape != other.shape or len(one) < 2 * _BATCHES:
        raise PolicyError(
            f"{what} have the shapes {one.shape} and {other.shape}; wanted two series of"
            f" the same times, {2 * _BATCHES} or more"
        )
    both = np.concatenate([one, other])
    if not (np.isfinite(both).all() and (both > 0).all()):
        raise PolicyError(f"{what} have values that are not above 0")
    return np.log(other / one)


def _interval(
    measured: np.ndarray, noise: np.ndarray, confidence: float
) -> tuple[float, float, float]:
    """Lower end, mean and upper end of the effect (Welch's interval of batch means)."""
    if not 0 < confidence < 1:
        raise PolicyError(
            f"confidence is {confidence}; wanted a number between 0 and 1"
        )
    parts = [
        np.array([part.mean() for part in np.array_split(series, _BATCHES)])
        for series in (measured, noise)
    ]
    errors = [part.var(ddof=1) / _BATCHES for part in parts]
    mean, error = float(measured.mean() - noise.mean()), sum(errors)
    if not error:
        return mean, mean, mean
    freedom = error**2 / sum(each**2 / (_BATCHES - 1) for each in errors)
    half = float(stats.t.ppf((1 + confidence) / 2, freedom) * np.sqrt(error))
    return mean - half, mean, mean + half


def _deconvolve(
    measured: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Effects on a grid, their shares of the time, and the expected effect at each time.

    The likeliest distribution of the effect, by expectation maximisation (Laird, 1978).
    The noise has the density of the no-op's differences, smoothed.
    """
    rest = noise - noise.mean()
    width = 0.9 * max(float(rest.std()), 1e-9) * len(rest) ** -0.2
    grid = np.linspace(measured.min(), measured.max(), _GRID)
    away = np.linspace(measured.min() - grid[-1], measured.max() - grid[0], 8 * _GRID)
    kernel = np.exp(-(((away[:, None] - rest) / width) ** 2) / 2).mean(1)
    density = np.interp(measured[:, None] - grid, away, kernel) + 1e-300
    shares, posterior = np.full(_GRID, 1 / _GRID), density
    for _ in range(_ROUNDS):
        posterior = density * shares
        posterior /= posterior.sum(1, keepdims=True)
        shares = posterior.mean(0)
    return grid, shares, posterior @ grid
