"""A small network that compares objects in pairs, trained on one comparison at a time."""

from typing import NamedTuple

import numpy as np

from meshwright.search.compiled import compiled

_UNITS = 16
"""Units of the network's hidden layer."""

_RATE, _MOMENT, _SCALE = 0.003, 0.9, 0.999
"""Adam's rate of learning, and the decay of its means and of its mean squares."""


class PairNetwork(NamedTuple):
    """A network of one hidden layer, which gives an object's score for eviction.

    weights: those of the hidden layer by unit, with the bias last.
    out: weights of the hidden units in the score.
    slopes, squares: Adam's means of the gradients and of their squares, the row of `out`
        below those of `weights`.
    steps: number of updates.
    """

    weights: np.ndarray
    out: np.ndarray
    slopes: np.ndarray
    squares: np.ndarray
    steps: np.ndarray


@compiled
def random_network(features: int, seed: int) -> PairNetwork:
    """A network with random weights."""
    np.random.seed(seed)
    weights = np.random.standard_normal((_UNITS, features + 1)) / np.sqrt(features)
    out = np.random.standard_normal(_UNITS) / np.sqrt(_UNITS)
    shape = (_UNITS + 1, features + 1)
    return PairNetwork(
        weights.astype(np.float32),
        out.astype(np.float32),
        np.zeros(shape, np.float32),
        np.zeros(shape, np.float32),
        np.zeros(1, np.int64),
    )


@compiled
def _hidden(network: PairNetwork, features: np.ndarray, unit: int) -> float:
    """A hidden unit's value before its threshold."""
    total = network.weights[unit, len(features)]
    for k in range(len(features)):
        total += network.weights[unit, k] * features[k]
    return total


@compiled
def score(network: PairNetwork, features: np.ndarray) -> float:
    """How well an object can be evicted, beside others of the same time."""
    total = np.float32(0)
    for unit in range(_UNITS):
        total += (
            max(_hidden(network, features, unit), np.float32(0)) * network.out[unit]
        )
    return float(total)


@compiled
def learn(network: PairNetwork, better: np.ndarray, worse: np.ndarray) -> None:
    """One step of Adam on the log likelihood that `better` has the greater score."""
    margin = score(network, better) - score(network, worse)
    pull = -1 / (1 + np.exp(margin))
    network.steps[0] += 1
    step = min(network.steps[0], 10_000)
    rate = _RATE * np.sqrt(1 - _SCALE**step) / (1 - _MOMENT**step)
    for unit in range(_UNITS):
        up, down = _hidden(network, better, unit), _hidden(network, worse, unit)
        weight = network.out[unit]
        slope = pull * (max(up, 0) - max(down, 0))
        network.out[unit] -= _adam(network, _UNITS, unit, slope, rate)
        above, below = pull * weight * (up > 0), pull * weight * (down > 0)
        for k in range(len(better)):
            slope = above * better[k] - below * worse[k]
            network.weights[unit, k] -= _adam(network, unit, k, slope, rate)
        network.weights[unit, len(better)] -= _adam(
            network, unit, len(better), above - below, rate
        )


@compiled
def _adam(
    network: PairNetwork, row: int, column: int, slope: float, rate: float
) -> float:
    """The change of one weight."""
    mean = _MOMENT * network.slopes[row, column] + (1 - _MOMENT) * slope
    square = _SCALE * network.squares[row, column] + (1 - _SCALE) * slope * slope
    network.slopes[row, column], network.squares[row, column] = mean, square
    return rate * mean / (np.sqrt(square) + 1e-6)
