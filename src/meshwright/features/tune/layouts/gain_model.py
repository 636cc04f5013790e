"""A Gaussian process that predicts the gains of layout choices.

The gain of a choice is the logarithm of cost before / cost after. The mean of the
process is linear in `features`; its weights are `shipped_weights`.
Within a run, the gain of one choice tells something about others: about choices for the
same site, with the same minor dims, or for values with the same role.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from meshwright.features.tune.layouts.problem import LayoutChoice, State
from meshwright.features.tune.layouts.sites import Site
from meshwright.predict.roofline.matrix_unit import padded_extent

_LIMIT = 0.3
"""Largest gain or loss that counts, as the logarithm of a ratio of costs (1.35x)."""
_SITE, _MINOR, _PART, _OWN = 0.012, 0.008, 0.006, 0.004
"""Variances of gains that choices share, by what they have in common."""
_NOISE = 1e-4
_MOST_SEEN = 64
"""Number of most recent gains that a prediction takes into account."""
_OPTIMISM = 1.0
"""Standard deviations added to a predicted gain, so that unsure choices are tried."""


def cut_gain(before: float, after: float) -> float:
    """Logarithm of before / after, cut off at +-`_LIMIT`; positive if the cost fell.

    An infinite cost counts as the largest loss.
    """
    if not (math.isfinite(before) and math.isfinite(after)):
        return -_LIMIT
    return max(-_LIMIT, min(_LIMIT, math.log(before / after)))


@dataclass(slots=True, eq=False)
class GainModel:
    """The gain model of one run, which learns from the costs that the run finds.

    sites: sites by name. prior: weight of each feature in the mean, by name.
    seen: choices that were tried, with their gains.
    means: gains that the linear model expects of choices, once they are computed.
    """

    sites: Mapping[str, Site]
    prior: Mapping[str, float]
    seen: list[tuple[LayoutChoice, float]] = field(default_factory=list)
    means: dict[LayoutChoice, float] = field(default_factory=dict)

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
        choices = [choice for choice, _ in seen]
        surprise = np.array([gain - self._mean(c) for c, gain in seen])
        within = self._covariance(choices, choices) + _NOISE * np.eye(len(choices))
        across = self._covariance(actions, choices)
        solved = np.linalg.solve(within, np.column_stack([surprise, across.T]))
        spread = prior - np.einsum("ij,ji->i", across, solved[:, 1:])
        bound = _OPTIMISM * np.sqrt(np.maximum(spread, 0.0))
        return (means + across @ solved[:, 0] + bound).tolist()

    def learn(self, added: Sequence[LayoutChoice], before: float, after: float) -> None:
        gain = cut_gain(before, after)
        if len(added) > 1 and gain < 0:
            return  # which choice caused the loss is unknown
        for choice in added:
            self.seen.append((choice, gain / len(added)))

    def _mean(self, choice: LayoutChoice) -> float:
        """The gain that the linear model expects of a choice."""
        mean = self.means.get(choice)
        if mean is None:
            values = features(self.sites[choice.site], choice)
            mean = sum(self.prior.get(name, 0.0) * value for name, value in values)
            self.means[choice] = mean
        return mean

    def _covariance(
        self, first: Sequence[LayoutChoice], second: Sequence[LayoutChoice]
    ) -> np.ndarray:
        one, two = self._codes_of(first), self._codes_of(second)
        total = np.zeros((len(first), len(second)))
        for index, variance in enumerate((_SITE, _MINOR, _PART, _OWN)):
            total += variance * (one[:, index, None] == two[None, :, index])
        return total

    def _codes_of(self, choices: Sequence[LayoutChoice]) -> np.ndarray:
        """Integers for the four keys of each choice, an array of shape (choices, 4).

        Equal integers in a column mark correlated gains. The columns stand for: the
        site; the site with its two minor dims; the role of the site with these dims;
        the choice itself.
        """
        return np.array([[hash(key) for key in self._likeness(c)] for c in choices])

    def _likeness(self, choice: LayoutChoice) -> tuple[object, ...]:
        """Four keys of a choice; choices with an equal key have correlated gains."""
        site, minors = self.sites[choice.site], choice.order[-2:]
        letters = "".join(site.dims[d] for d in minors)
        return choice.site, (choice.site, minors), (site.role, letters), choice


# -- features ----------------------------------------------------------------------------

_LANES, _SUBLANES = 128, 8
"""The tile to which a TPU pads the two minor dims."""


def features(site: Site, choice: LayoutChoice) -> Iterator[tuple[str, float]]:
    """Names and values of a layout choice's features.

    They are equal for sites whose values have the same shape and the same role.
    """
    producer, _, read = site.role.partition(">")
    rank, order = len(site.shape), choice.order
    minor, second = order[-1], order[-2]
    letters = f"{site.dims[second]}{site.dims[minor]}"
    yield "bias", 1.0
    yield f"made={producer}", 1.0
    yield f"read={read}", 1.0
    yield f"role={site.role}", 1.0
    yield f"rank={rank}", 1.0
    yield f"minor={site.dims[minor]}", 1.0
    yield f"minors={letters}", 1.0
    yield f"read={read} minors={letters}", 1.0
    yield f"twin={int(choice.with_twin)}{int(bool(site.twins))}", 1.0
    yield f"moved={sum(a != b for a, b in zip(order, range(rank), strict=True))}", 1.0
    yield f"minor_size={_size(site.shape[minor], _LANES)}", 1.0
    yield f"second_size={_size(site.shape[second], _SUBLANES)}", 1.0
    yield "padding", math.log2(padding(site.shape, order) / best_padding(site))
    yield "share", site.share
    yield "loops", float(site.role.startswith("carry"))


def _size(extent: int, tile: int) -> str:
    if extent % tile == 0:
        return "whole"
    return "large" if extent > tile else "small"


def padding(shape: tuple[int, ...], order: tuple[int, ...]) -> float:
    """Bytes of an array padded to tiles, divided by its bytes without padding.

    order: dims of the array, major to minor.
    """
    minor, second = shape[order[-1]], shape[order[-2]]
    lanes, sublanes = padded_extent(minor, _LANES), padded_extent(second, _SUBLANES)
    return (lanes / minor) * (sublanes / second)


def best_padding(site: Site) -> float:
    """The smallest `padding` that any order of the dims of a site's values has."""
    rank = range(len(site.shape))
    return min(padding(site.shape, (a, b)) for a in rank for b in rank if a != b)
