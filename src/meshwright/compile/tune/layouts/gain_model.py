"""A Gaussian process that predicts the gains of layout choices.

Its mean is linear in `features`; the weights, in `gain_weights.json`, are set by hand.
Within a run, covariances tell what the gain of one choice says about others: choices of the
same site, choices with the same minor dims, and choices for values with the same role.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

import numpy as np

from meshwright.compile.tune.layouts.features import features
from meshwright.compile.tune.layouts.problem import LayoutChoice, State
from meshwright.compile.tune.layouts.sites import Site

_LIMIT = 0.3
"""Gains and losses are cut here, as logarithms of ratios: 1.35x."""
_SITE, _MINOR, _PART, _OWN = 0.012, 0.008, 0.006, 0.004
"""Variances of gains that choices share, by what they have in common."""
_NOISE = 1e-4
_MOST_SEEN = 64
"""Latest gains that are taken into account."""
_OPTIMISM = 1.0
"""Standard deviations that are added to the mean of a choice."""


@cache
def shipped_weights() -> Mapping[str, float]:
    """The weights that come with the package."""
    text = (
        files("meshwright.compile.tune.layouts")
        .joinpath("gain_weights.json")
        .read_text()
    )
    return json.loads(text)["weights"]


def linear_gain(found: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """The expected gain of a choice with these features."""
    return sum(weights.get(name, 0.0) * value for name, value in found.items())


def cut_gain(before: float, after: float) -> float:
    """Logarithm of the ratio of costs, above 0 for a gain, within limits."""
    if not (math.isfinite(before) and math.isfinite(after)):
        return -_LIMIT
    return max(-_LIMIT, min(_LIMIT, math.log(before / after)))


@dataclass(slots=True, eq=False)
class GainModel:
    """The gain model of one run.

    prior: weights of features.
    seen: choices that were tried, with their gains.
    """

    sites: Mapping[str, Site]
    prior: Mapping[str, float]
    seen: list[tuple[LayoutChoice, float]] = field(default_factory=list)
    _means: dict[LayoutChoice, float] = field(default_factory=dict)
    _codes: dict[LayoutChoice, tuple[int, ...]] = field(default_factory=dict)
    _numbers: dict[object, int] = field(default_factory=dict)

    def weights(self, state: State, actions: Sequence[LayoutChoice]) -> Sequence[float]:
        """Upper confidence bounds of the gains of actions, assumed equal in every state."""
        del state
        if not actions:
            return []
        means = np.array([self._mean(action) for action in actions])
        prior = np.full(len(actions), _SITE + _MINOR + _PART + _OWN)
        seen = self.seen[-_MOST_SEEN:]
        if not seen:
            return (means + _OPTIMISM * np.sqrt(prior)).tolist()
        known = [choice for choice, _ in seen]
        surprise = np.array([gain - self._mean(c) for c, gain in seen])
        within = self._covariance(known, known) + _NOISE * np.eye(len(known))
        across = self._covariance(actions, known)
        solved = np.linalg.solve(within, np.column_stack([surprise, across.T]))
        spread = prior - np.einsum("ij,ji->i", across, solved[:, 1:])
        bound = _OPTIMISM * np.sqrt(np.maximum(spread, 0.0))
        return (means + across @ solved[:, 0] + bound).tolist()

    def learn(self, added: Sequence[LayoutChoice], before: float, after: float) -> None:
        gain = cut_gain(before, after)
        if len(added) > 1 and gain < 0:
            return  # nobody knows which of them it was
        for choice in added:
            self.seen.append((choice, gain / len(added)))

    def _mean(self, choice: LayoutChoice) -> float:
        if choice not in self._means:
            found = features(self.sites[choice.site], choice)
            self._means[choice] = linear_gain(found, self.prior)
        return self._means[choice]

    def _covariance(
        self, first: Sequence[LayoutChoice], second: Sequence[LayoutChoice]
    ) -> np.ndarray:
        one, two = self._codes_of(first), self._codes_of(second)
        total = np.zeros((len(first), len(second)))
        for index, variance in enumerate((_SITE, _MINOR, _PART, _OWN)):
            total += variance * (one[:, index, None] == two[None, :, index])
        return total

    def _codes_of(self, choices: Sequence[LayoutChoice]) -> np.ndarray:
        """Integer labels of choices, [choices, 4]; equal labels mark correlated gains.

        Columns: site; site and its two minor dims; role of the site and these dims;
        the choice itself.
        """
        for choice in choices:
            if choice not in self._codes:
                self._codes[choice] = tuple(map(self._code, self._likeness(choice)))
        return np.array([self._codes[choice] for choice in choices])

    def _code(self, label: object) -> int:
        return self._numbers.setdefault(label, len(self._numbers))

    def _likeness(self, choice: LayoutChoice) -> tuple[object, ...]:
        """The key under which similar choices share their gains."""
        site, minors = self.sites[choice.site], choice.order[-2:]
        letters = "".join(site.dims[d] for d in minors)
        return choice.site, (choice.site, minors), (site.role, letters), choice
