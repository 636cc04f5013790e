"""A small network that compares objects in pairs, trained on one comparison at a time."""

from typing import Any, NamedTuple

import numpy as np

from meshwright.search.compiled import compiled, compiled_in_place

_UNITS = 16
"""Units of the network's hidden layer."""

_RATE, _MOMENT, _SCALE = 0.003, np.float32(0.9), np.float32(0.999)
"""Adam's rate of learning, and the decay of its means and of its mean squares."""


class PairNetwork(NamedTuple):
    """A network of one hidden layer, which gives an object's score for eviction.

    weights: those of the hidden layer by feature, with the bias last, and by unit.
    out: weights of the hidden units in the score.
    slopes, squares: Adam's means of the gradients and of their squares, the row of `out`
        below those of `weights`.
    steps: number of updates.
    units: the hidden units' values for two objects, while they are compared.
    """

    weights: np.ndarray
    out: np.ndarray
    slopes: np.ndarray
    squares: np.ndarray
    steps: np.ndarray
    units: np.ndarray


@compiled
def random_network(features: int, seed: int) -> PairNetwork:
    """A network with random weights."""
    np.random.seed(seed)
    weights = np.random.standard_normal((features + 1, _UNITS)) / np.sqrt(features)
    out = np.random.standard_normal(_UNITS) / np.sqrt(_UNITS)
    shape = (features + 2, _UNITS)
    return PairNetwork(
        weights.astype(np.float32),
        out.astype(np.float32),
        np.zeros(shape, np.float32),
        np.zeros(shape, np.float32),
        np.zeros(1, np.int64),
        np.zeros((2, _UNITS), np.float32),
    )


@compiled_in_place
def score(network: PairNetwork, features: np.ndarray) -> float:
    """How well an object can be evicted, beside others of the same time."""
    return _score(network, features, network.units[0])


@compiled_in_place
def _score(network: PairNetwork, features: np.ndarray, units: np.ndarray) -> float:
    """An object's score; writes the hidden units' values before their threshold."""
    for unit in range(_UNITS):
        units[unit] = network.weights[len(features), unit]
    for k in range(len(features)):
        for unit in range(_UNITS):
            units[unit] += network.weights[k, unit] * features[k]
    total = np.float32(0)
    for unit in range(_UNITS):
        total += max(units[unit], np.float32(0)) * network.out[unit]
    return float(total)


@compiled_in_place
def learn(network: PairNetwork, better: np.ndarray, worse: np.ndarray) -> None:
    """One step of Adam on the log likelihood that `better` has the greater score."""
    ups, downs = network.units[0], network.units[1]
    margin = _score(network, better, ups) - _score(network, worse, downs)
    pull = np.float32(-1 / (1 + np.exp(margin)))
    network.steps[0] += 1
    step = min(network.steps[0], 10_000)
    rate = np.float32(_RATE * np.sqrt(1 - _SCALE**step) / (1 - _MOMENT**step))
    last, none = len(better), np.float32(0)
    for unit in range(_UNITS):
        up, down = ups[unit], downs[unit]
        weight = network.out[unit] * pull
        ups[unit] = weight if up > 0 else none
        downs[unit] = weight if down > 0 else none
        slope = pull * (max(up, none) - max(down, none))
        network.out[unit] -= _adam(network, last + 1, unit, slope, rate)
        slope = ups[unit] - downs[unit]
        network.weights[last, unit] -= _adam(network, last, unit, slope, rate)
    for k in range(last):
        for unit in range(_UNITS):
            slope = ups[unit] * better[k] - downs[unit] * worse[k]
            network.weights[k, unit] -= _adam(network, k, unit, slope, rate)


@compiled_in_place
def _adam(
    network: PairNetwork, row: int, column: int, slope: float, rate: np.floating[Any]
) -> float:
    """The change of one weight."""
    one = np.float32(1)
    mean = _MOMENT * network.slopes[row, column] + (one - _MOMENT) * slope
    square = _SCALE * network.squares[row, column] + (one - _SCALE) * slope * slope
    network.slopes[row, column], network.squares[row, column] = mean, square
    return rate * mean / (np.sqrt(square) + np.float32(1e-6))
