"""Effects of policies in synthetic comparisons: the interval contains the true one."""

import numpy as np
import pytest

from meshwright.errors import PolicyError
from meshwright.policies import impact

HOURS = 24 * 14


def series(draws: np.random.Generator) -> np.ndarray:
    """Noise of a group of servers: each hour resembles the one before."""
    noise = draws.normal(0, 0.02, HOURS)
    for t in range(1, HOURS):
        noise[t] += 0.5 * noise[t - 1]
    return noise


def comparison(seed: int) -> tuple[float, np.ndarray, list[np.ndarray]]:
    """A mean effect, the effect by hour, and the four series of a comparison."""
    draws = np.random.default_rng(seed)
    load = 1e9 * np.exp(np.sin(np.arange(HOURS) * 2 * np.pi / 24))
    mean = draws.uniform(-0.1, 0.1)
    effect = mean + 0.04 * np.sin(np.arange(HOURS) * 2 * np.pi / 24)
    bias = 0.01  # groups that differ always, which the no-op shows
    groups = [
        load * np.exp(each + series(draws)) for each in (0, effect + bias, 0, bias)
    ]
    return float(np.expm1(effect.mean())), np.expm1(effect), groups


def test_the_stated_interval_contains_the_effect_in_95_of_100_runs() -> None:
    found = 0
    closer = 0
    for seed in range(100):
        mean, effect, (control, treated, noop_control, noop) = comparison(seed)
        result = impact(control, treated, noop_control, noop)
        found += result.low <= mean <= result.high
        assert result.high - result.low < 0.04
        plain = treated / control - 1
        closer += np.square(result.over_time - effect).sum() < (
            np.square(plain - effect).sum()
        )
    assert found >= 95
    assert closer == 100  # at each time, too, the noise is taken out


def test_the_distribution_has_the_spread_of_the_effect_not_of_the_noise() -> None:
    _, effect, groups = comparison(1)
    result = impact(*groups)
    spread = result.quantile(0.9) - result.quantile(0.1)
    true = np.quantile(effect, 0.9) - np.quantile(effect, 0.1)
    measured = np.subtract(*np.quantile(groups[1] / groups[0], (0.9, 0.1)))
    assert abs(spread - true) < 0.7 * abs(measured - true)
    assert str(result).startswith(f"{result.effect:+.2%}, from ")


def test_refused_series() -> None:
    ones = np.ones(50)
    with pytest.raises(PolicyError, match="same times, 40 or more"):
        impact(ones, ones[:45], ones, ones)
    with pytest.raises(PolicyError, match="not above 0"):
        impact(ones, ones, ones, 0 * ones)
    with pytest.raises(PolicyError, match="confidence is 2"):
        impact(ones, ones, ones, ones, confidence=2)
    assert impact(ones, ones * 0.9, ones, ones).effect == pytest.approx(-0.1)
