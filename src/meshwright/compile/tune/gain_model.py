"""A Gaussian process over the gains of choices, whose mean was learned from other programs.

The mean is linear in `features`; its weights are fitted to collected runs and shipped in
`gain_weights.json`. Within a run, covariances tell what one choice says about others: of the
same site, of the same site with the same minor dim, of the same part in other layers.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

import numpy as np

from meshwright.compile.tune.features import features
from meshwright.compile.tune.problem import Choice, State
from meshwright.compile.tune.sites import Site

_LIMIT = 0.3
"""Gains and losses are cut here, as logarithms of ratios: 1.35x."""
_SITE, _MINOR, _PART, _OWN = 0.012, 0.008, 0.006, 0.004
"""Variances of gains that choices share, by what they have in common."""
_NOISE = 1e-4
_OPTIMISM = 1.0
"""Standard deviations that are added to the mean of a choice."""


@cache
def shipped_weights() -> Mapping[str, float]:
    """The weights that come with the package."""
    text = files("meshwright.compile.tune").joinpath("gain_weights.json").read_text()
    return json.loads(text)["weights"]


def linear_gain(found: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """The expected gain of a choice with these features."""
    return sum(weights.get(name, 0.0) * value for name, value in found.items())


def cut_gain(before: float, after: float) -> float:
    """Logarithm of the ratio of costs, above 0 for a gain, within limits."""
    if not math.isfinite(after):
        return -_LIMIT
    return max(-_LIMIT, min(_LIMIT, math.log(before / after)))


@dataclass(slots=True, eq=False)
class GainModel:
    """The model of one run.

    prior: weights of features. seen: choices that were tried, with their gains.
    """

    sites: Mapping[str, Site]
    prior: Mapping[str, float]
    seen: list[tuple[Choice, float]] = field(default_factory=list)
    _means: dict[Choice, float] = field(default_factory=dict)

    def weights(self, state: State, actions: Sequence[Choice]) -> Sequence[float]:
        """Upper confidence bounds of gains, which are taken to be alike in every state."""
        del state
        if not actions:
            return []
        means = np.array([self._mean(action) for action in actions])
        prior = np.full(len(actions), _SITE + _MINOR + _PART + _OWN)
        if not self.seen:
            return (means + _OPTIMISM * np.sqrt(prior)).tolist()
        known = [choice for choice, _ in self.seen]
        surprise = np.array([gain - self._mean(c) for c, gain in self.seen])
        within = self._covariance(known, known) + _NOISE * np.eye(len(known))
        across = self._covariance(actions, known)
        solved = np.linalg.solve(within, np.column_stack([surprise, across.T]))
        spread = prior - np.einsum("ij,ji->i", across, solved[:, 1:])
        bound = _OPTIMISM * np.sqrt(np.maximum(spread, 0.0))
        return (means + across @ solved[:, 0] + bound).tolist()

    def learn(self, added: Sequence[Choice], before: float, after: float) -> None:
        gain = cut_gain(before, after)
        if len(added) > 1 and gain < 0:
            return  # nobody knows which of them it was
        for choice in added:
            self.seen.append((choice, gain / len(added)))

    def _mean(self, choice: Choice) -> float:
        if choice not in self._means:
            found = features(self.sites[choice.site], choice)
            self._means[choice] = linear_gain(found, self.prior)
        return self._means[choice]

    def _covariance(
        self, first: Sequence[Choice], second: Sequence[Choice]
    ) -> np.ndarray:
        one, two = self._labels(first), self._labels(second)
        variances = (_SITE, _MINOR, _PART, _OWN)
        return sum(
            (
                variance * (a[:, None] == b[None, :])
                for variance, a, b in zip(variances, one, two, strict=True)
            ),
            np.zeros((len(first), len(second))),
        )

    def _labels(self, choices: Sequence[Choice]) -> list[np.ndarray]:
        """By kind of likeness, a label for each choice; equal ones are alike."""
        texts: list[list[str]] = [[], [], [], []]
        for choice in choices:
            site, (second, minor) = self.sites[choice.site], choice.order[-2:]
            texts[0].append(choice.site)
            texts[1].append(f"{choice.site} {second} {minor}")
            texts[2].append(f"{site.role} {site.dims[second]}{site.dims[minor]}")
            texts[3].append(str(choice))
        return [np.array(each, dtype=object) for each in texts]
