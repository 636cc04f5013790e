"""A small network that compares objects in pairs, trained on one comparison at a time."""

from typing import Any, NamedTuple

import numpy as np

from meshwright.features.policies.cache.eviction.learning.histories import FEATURES
from meshwright.search.compiled import (
    compiled,
    compiled_in_place,
    compiled_to_vectors,
)

_UNITS = 16
"""Units of the network's hidden layer."""

_INPUTS = FEATURES + 1
"""Its inputs: the features of an object, and a 1 for the bias."""

_AT_ONCE = 7
"""Inputs that are added to a sum before it is stored."""

_SHARE = np.float32(1 / 160)
"""What a feature of 8 bits is multiplied with: it counts eighths of an octave."""

_RATE, _MOMENT, _SCALE = 0.003, np.float32(0.9), np.float32(0.999)
"""Adam's rate of learning, and the decay of its means and of its mean squares."""

_SETTLED = 10_000
"""Updates after which the rate is no longer corrected for the first ones."""

_LEAST = np.float32(1e-6)
"""What is added to the root of a mean square, which may be 0."""


_NOTHING = np.float32(1e-30)
"""A mean up to which it counts as 0, since it changes no weight. Means of units without
gradients would else become subnormal numbers, which are slow."""


class PairNetwork(NamedTuple):
    """A network of one hidden layer, which gives an object's score for eviction.

    weights: those of the hidden layer by feature, with the bias last, and by unit.
    out: weights of the hidden units in the score.
    slopes, squares: Adam's means of the gradients and of their squares, the row of `out`
        below those of `weights`.
    steps: number of updates. rate: that of the last one, corrected for the first ones.
    features, units: of the objects that are compared, the features as shares, with a 1 at
        the end for the bias, and the hidden units' values.
    """

    weights: np.ndarray
    out: np.ndarray
    slopes: np.ndarray
    squares: np.ndarray
    steps: np.ndarray
    rate: np.ndarray
    features: np.ndarray
    units: np.ndarray


@compiled
def random_network(objects: int, seed: int) -> PairNetwork:
    """A network with random weights, which scores some objects at once, at least two."""
    np.random.seed(seed)
    weights = np.random.standard_normal((_INPUTS, _UNITS)) / np.sqrt(FEATURES)
    out = np.random.standard_normal(_UNITS) / np.sqrt(_UNITS)
    shape = (_INPUTS + 1, _UNITS)
    return PairNetwork(
        weights.astype(np.float32),
        out.astype(np.float32),
        np.zeros(shape, np.float32),
        np.zeros(shape, np.float32),
        np.zeros(1, np.int64),
        np.zeros(1, np.float32),
        np.ones((objects, _INPUTS), np.float32),
        np.zeros((objects, _UNITS), np.float32),
    )


@compiled_in_place
def score(network: PairNetwork, codes: np.ndarray, values: np.ndarray) -> None:
    """Write how well objects can be evicted, beside others of the same time.

    codes: [N, F], features of the objects as numbers of 8 bits. values: [N].
    """
    for one in range(len(codes)):
        _shares(codes[one], network.features[one])
    _fill_units(network.weights, network.features, network.units, len(codes))
    for one in range(len(codes)):
        values[one] = _score(network.out, network.units[one])


@compiled_to_vectors
def _shares(codes: np.ndarray, features: np.ndarray) -> None:
    """Write features of 8 bits as shares, where 20 octaves are 1."""
    for k in range(len(codes)):
        features[k] = codes[k] * _SHARE


@compiled_to_vectors
def _fill_units(
    weights: np.ndarray, features: np.ndarray, units: np.ndarray, count: int
) -> None:
    """Write the hidden units' values before their threshold, of the first objects.

    The bounds of the outer loops are constants, which makes the places in arrays cheap, but
    not those of the inner ones: they would be unrolled, and have no vectors.
    """
    none = np.float32(0)
    for one in range(count):
        x, row = features[one], units[one]
        for unit in range(len(row)):
            row[unit] = none
        for k in range(0, _INPUTS - _INPUTS % _AT_ONCE, _AT_ONCE):
            a, b, c, d = x[k], x[k + 1], x[k + 2], x[k + 3]
            e, f, g = x[k + 4], x[k + 5], x[k + 6]
            for unit in range(len(row)):
                total = row[unit] + weights[k, unit] * a
                total += weights[k + 1, unit] * b
                total += weights[k + 2, unit] * c
                total += weights[k + 3, unit] * d
                total += weights[k + 4, unit] * e
                total += weights[k + 5, unit] * f
                row[unit] = total + weights[k + 6, unit] * g
        for k in range(_INPUTS - _INPUTS % _AT_ONCE, _INPUTS):
            for unit in range(len(row)):
                row[unit] += weights[k, unit] * x[k]


@compiled_to_vectors
def _score(out: np.ndarray, units: np.ndarray) -> float:
    """An object's score, by the values of its hidden units."""
    none = np.float32(0)
    total = none
    for unit in range(0, _UNITS, 2):
        one, other = max(units[unit], none), max(units[unit + 1], none)
        total += one * out[unit] + other * out[unit + 1]
    return float(total)


@compiled_in_place
def learn(
    network: PairNetwork, better_codes: np.ndarray, worse_codes: np.ndarray
) -> None:
    """One step of Adam on the log likelihood that the better one has the greater score."""
    better, worse = network.features[0], network.features[1]
    _shares(better_codes, better)
    _shares(worse_codes, worse)
    _fill_units(network.weights, network.features, network.units, 2)
    ups, downs = network.units[0], network.units[1]
    margin = _score(network.out, ups) - _score(network.out, downs)
    pull = np.float32(-1 / (1 + np.exp(margin)))
    network.steps[0] += 1
    step = network.steps[0]
    if step <= _SETTLED:
        network.rate[0] = _RATE * np.sqrt(1 - _SCALE**step) / (1 - _MOMENT**step)
    _pull_out(network, pull, network.rate[0])
    _pull_weights(network, network.rate[0])


@compiled_to_vectors
def _pull_out(
    network: PairNetwork, pull: np.floating[Any], rate: np.floating[Any]
) -> None:
    """Change the units' weights in the score; turns their values into their gradients."""
    out, ups, downs = network.out, network.units[0], network.units[1]
    slopes, squares = network.slopes[-1], network.squares[-1]
    none = np.float32(0)
    for unit in range(len(out)):
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
    one, none = np.float32(1), np.float32(0)
    mean = _MOMENT * mean + (one - _MOMENT) * slope
    square = _SCALE * square + (one - _SCALE) * slope * slope
    return mean if abs(mean) > _NOTHING else none, square if square > _NOTHING else none
