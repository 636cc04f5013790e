"""A small network that compares objects in pairs, trained on one comparison at a time."""

from typing import Any, NamedTuple

import numpy as np

from meshwright.search.compiled import (
    compiled,
    compiled_in_place,
    compiled_to_vectors,
)

_UNITS = 16
"""Units of the network's hidden layer."""

_SHARE = np.float32(1 / 160)
"""What a feature of 8 bits is multiplied with: it counts eighths of an octave."""

_RATE, _MOMENT, _SCALE = 0.003, np.float32(0.9), np.float32(0.999)
"""Adam's rate of learning, and the decay of its means and of its mean squares."""

_LEAST = np.float32(1e-6)
"""What is added to the root of a mean square, which may be 0."""


class PairNetwork(NamedTuple):
    """A network of one hidden layer, which gives an object's score for eviction.

    weights: those of the hidden layer by feature, with the bias last, and by unit.
    out: weights of the hidden units in the score.
    slopes, squares: Adam's means of the gradients and of their squares, the row of `out`
        below those of `weights`.
    steps: number of updates.
    features, units: of two objects that are compared, the features as shares, with a 1 at
        the end for the bias, and the hidden units' values.
    """

    weights: np.ndarray
    out: np.ndarray
    slopes: np.ndarray
    squares: np.ndarray
    steps: np.ndarray
    features: np.ndarray
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
        np.ones((2, features + 1), np.float32),
        np.zeros((2, _UNITS), np.float32),
    )


@compiled_in_place
def score(network: PairNetwork, codes: np.ndarray) -> float:
    """How well an object can be evicted, beside others of the same time.

    codes: the object's features as numbers of 8 bits.
    """
    features, units = network.features[0], network.units[0]
    _shares(codes, features)
    return _score(network.weights, network.out, features, units)


@compiled_to_vectors
def _shares(codes: np.ndarray, features: np.ndarray) -> None:
    """Write features of 8 bits as shares, where 20 octaves are 1."""
    for k in range(len(codes)):
        features[k] = codes[k] * _SHARE


@compiled_to_vectors
def _score(
    weights: np.ndarray, out: np.ndarray, features: np.ndarray, units: np.ndarray
) -> float:
    """An object's score; writes the hidden units' values before their threshold.

    Four units at a time, so that their sums stay in registers.
    """
    none = np.float32(0)
    total = none
    for unit in range(0, _UNITS, 4):
        a, b, c, d = none, none, none, none
        for k in range(len(features)):
            feature = features[k]
            a += weights[k, unit] * feature
            b += weights[k, unit + 1] * feature
            c += weights[k, unit + 2] * feature
            d += weights[k, unit + 3] * feature
        units[unit], units[unit + 1], units[unit + 2], units[unit + 3] = a, b, c, d
        total += max(a, none) * out[unit] + max(b, none) * out[unit + 1]
        total += max(c, none) * out[unit + 2] + max(d, none) * out[unit + 3]
    return float(total)


@compiled_in_place
def learn(
    network: PairNetwork, better_codes: np.ndarray, worse_codes: np.ndarray
) -> None:
    """One step of Adam on the log likelihood that the better one has the greater score."""
    better, worse = network.features[0], network.features[1]
    _shares(better_codes, better)
    _shares(worse_codes, worse)
    weights, out = network.weights, network.out
    ups, downs = network.units[0], network.units[1]
    margin = _score(weights, out, better, ups) - _score(weights, out, worse, downs)
    pull = np.float32(-1 / (1 + np.exp(margin)))
    network.steps[0] += 1
    step = min(network.steps[0], 10_000)
    rate = np.float32(_RATE * np.sqrt(1 - _SCALE**step) / (1 - _MOMENT**step))
    _pull_out(network, pull, rate)
    _pull_weights(network, rate)


@compiled_to_vectors
def _pull_out(
    network: PairNetwork, pull: np.floating[Any], rate: np.floating[Any]
) -> None:
    """Change the units' weights in the score; turns their values into their gradients."""
    out, ups, downs = network.out, network.units[0], network.units[1]
    slopes, squares = network.slopes[-1], network.squares[-1]
    none = np.float32(0)
    for unit in range(_UNITS):
        up, down = ups[unit], downs[unit]
        weight = out[unit] * pull
        ups[unit] = weight if up > 0 else none
        downs[unit] = weight if down > 0 else none
        slope = pull * (max(up, none) - max(down, none))
        slopes[unit], squares[unit] = _means(slopes[unit], squares[unit], slope)
        out[unit] -= rate * slopes[unit] / (np.sqrt(squares[unit]) + _LEAST)


@compiled_to_vectors
def _pull_weights(network: PairNetwork, rate: np.floating[Any]) -> None:
    """Change the weights of the hidden layer, by the gradients of its units."""
    weights, slopes, squares = network.weights, network.slopes, network.squares
    better, worse = network.features[0], network.features[1]
    ups, downs = network.units[0], network.units[1]
    for k in range(len(weights)):
        one, other = better[k], worse[k]
        for unit in range(_UNITS):
            slope = ups[unit] * one - downs[unit] * other
            mean, square = _means(slopes[k, unit], squares[k, unit], slope)
            slopes[k, unit], squares[k, unit] = mean, square
            weights[k, unit] -= rate * mean / (np.sqrt(square) + _LEAST)


@compiled_to_vectors
def _means(
    mean: np.float32, square: np.float32, slope: np.float32
) -> tuple[np.float32, np.float32]:
    """Adam's means of gradients and of their squares, after one more gradient."""
    one = np.float32(1)
    mean = _MOMENT * mean + (one - _MOMENT) * slope
    return mean, _SCALE * square + (one - _SCALE) * slope * slope
