"""An evolution strategy in which each example is perturbed on its own.

Evolution strategies estimate a gradient from pairs of opposite perturbations (Salimans
et al., arXiv 1703.03864). Here a cost is a mean over examples whose costs do not depend on
each other, so that each of them takes another direction: two measurements of a batch of
N examples give N directions instead of one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_BETA_1, _BETA_2, _TINY = 0.9, 0.99, 1e-8
"""Decay of Adam's moments (Kingma and Ba, ICLR 2015)."""

_AVERAGED = 0.9
"""Decay of the moving average of the weights."""


@dataclass(frozen=True, slots=True, eq=False)
class EvolutionState:
    """A point of a search; letters: W weights.

    moments: Adam's, [2, W]. mean: [W], moving average of the weights, which has less of
        the noise of single steps.
    """

    weights: NDArray[np.float64]
    moments: NDArray[np.float64]
    mean: NDArray[np.float64]
    step: int

    @classmethod
    def start(cls, weights: NDArray[np.float32]) -> "EvolutionState":
        """The state before the first step."""
        start = weights.astype(np.float64)
        return cls(start, np.zeros((2, len(start))), start, 0)


def direction(state: EvolutionState, seed: int, example: int) -> NDArray[np.float64]:
    """[W], the normal perturbation of one example at a step."""
    draw = np.random.default_rng([seed, state.step, example])
    return draw.normal(size=len(state.weights))


def advance(
    state: EvolutionState,
    directions: NDArray[np.float64],
    differences: NDArray[np.float64],
    *,
    spread: float,
    rate: float,
) -> EvolutionState:
    """The state after a step of Adam against the estimated gradient.

    directions: [N, W], of each example. differences: [N], cost with `spread` times its
        direction added, less that with it subtracted.
    """
    slope = differences @ directions / (2 * spread * max(1, len(differences)))
    first, second = state.moments
    first = _BETA_1 * first + (1 - _BETA_1) * slope
    second = _BETA_2 * second + (1 - _BETA_2) * slope**2
    step = state.step + 1
    change = first / (1 - _BETA_1**step)
    change /= np.sqrt(second / (1 - _BETA_2**step)) + _TINY
    weights = state.weights - rate * change
    share = max(1 - _AVERAGED, 1 / step)
    mean = (1 - share) * state.mean + share * weights
    return EvolutionState(weights, np.stack([first, second]), mean, step)
