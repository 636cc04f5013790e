"""Regression by boosted trees over features of 8 bits, as in LightGBM (Ke et al., 2017)."""

from typing import NamedTuple

import numpy as np

from meshwright.search.compiled import compiled, compiled_in_place

_DEPTH, _BINS = 5, 256

_LEAVES = 1 << _DEPTH

_RATE, _LEAST_EXAMPLES, _RIDGE = 0.15, 20, 1.0
"""Share of its fit that a tree adds, the fewest examples of a leaf, and the examples of
value 0 that each leaf is given beside its own."""


class Forest(NamedTuple):
    """Trees of equal depth, each a heap of questions and a row of values.

    features, limits: the question of each node: is this feature above this limit?
    values: what each leaf of each tree adds to the prediction.
    base: the mean of the examples, to which the trees add.
    fits: number of times that the trees were fitted.
    targets, nodes: what is left to explain of each example, and the node that it is in.
    sums, counts: targets and examples by node, feature and its value.
    """

    features: np.ndarray
    limits: np.ndarray
    values: np.ndarray
    base: np.ndarray
    fits: np.ndarray
    targets: np.ndarray
    nodes: np.ndarray
    sums: np.ndarray
    counts: np.ndarray


@compiled
def no_forest(trees: int, features: int, examples: int) -> Forest:
    """Trees that predict 0, and room to fit them to so many examples."""
    shape = (_LEAVES // 2, features, _BINS)
    return Forest(
        np.zeros((trees, _LEAVES), np.uint8),
        np.full((trees, _LEAVES), np.uint8(_BINS - 1), np.uint8),
        np.zeros((trees, _LEAVES), np.float32),
        np.zeros(1, np.float32),
        np.zeros(1, np.int64),
        np.zeros(examples, np.float32),
        np.zeros(examples, np.int32),
        np.zeros(shape, np.float32),
        np.zeros(shape, np.float32),
    )


@compiled_in_place
def predict(forest: Forest, features: np.ndarray) -> float:
    """The value that the trees expect for an object with these features."""
    total = forest.base[0]
    for tree in range(len(forest.values)):
        node = 1
        for _ in range(_DEPTH):
            above = features[forest.features[tree, node]] > forest.limits[tree, node]
            node = 2 * node + (1 if above else 0)
        total += forest.values[tree, node - _LEAVES]
    return total


@compiled_in_place
def fit(forest: Forest, examples: np.ndarray, number: int) -> None:
    """Replace the trees by ones that predict `targets` of the first examples."""
    targets, nodes = forest.targets, forest.nodes
    total = 0.0
    for i in range(number):
        total += targets[i]
    forest.base[0] = total / number
    forest.fits[0] += 1
    for i in range(number):
        targets[i] -= forest.base[0]
    for tree in range(len(forest.values)):
        for i in range(number):
            nodes[i] = 1
        for level in range(_DEPTH):
            _split_level(forest, tree, 1 << level, examples, number)
        _set_leaves(forest, tree, number)


@compiled_in_place
def _set_leaves(forest: Forest, tree: int, number: int) -> None:
    """Set the values of a tree's leaves, and take them off the targets."""
    sums, counts, nodes = forest.sums[0, 0], forest.counts[0, 0], forest.nodes
    for leaf in range(_LEAVES):
        sums[leaf], counts[leaf] = 0, _RIDGE
    for i in range(number):
        sums[nodes[i] - _LEAVES] += forest.targets[i]
        counts[nodes[i] - _LEAVES] += 1
    for leaf in range(_LEAVES):
        forest.values[tree, leaf] = _RATE * sums[leaf] / counts[leaf]
    for i in range(number):
        forest.targets[i] -= forest.values[tree, nodes[i] - _LEAVES]


@compiled_in_place
def _split_level(
    forest: Forest, tree: int, first: int, examples: np.ndarray, number: int
) -> None:
    """Choose the questions of one level of a tree, and move each example below its node."""
    sums, counts, width = forest.sums, forest.counts, examples.shape[1]
    for node in range(first):
        for k in range(width):
            for value in range(_BINS):
                sums[node, k, value] = 0
                counts[node, k, value] = 0
    for i in range(number):
        node = forest.nodes[i] - first
        for k in range(width):
            sums[node, k, examples[i, k]] += forest.targets[i]
            counts[node, k, examples[i, k]] += 1
    for node in range(first):
        feature, limit = _best_question(sums[node], counts[node])
        forest.features[tree, first + node] = feature
        forest.limits[tree, first + node] = limit
    for i in range(number):
        node = forest.nodes[i]
        above = examples[i, forest.features[tree, node]] > forest.limits[tree, node]
        forest.nodes[i] = 2 * node + (1 if above else 0)


@compiled_in_place
def _best_question(sums: np.ndarray, counts: np.ndarray) -> tuple[int, int]:
    """The feature and limit that reduce the squares most; no split by limit 255."""
    total, number = np.float32(0), np.float32(0)
    for value in range(_BINS):
        total += sums[0, value]
        number += counts[0, value]
    best, feature, limit = total * total / (number + _RIDGE), 0, _BINS - 1
    for k in range(len(sums)):
        low, few = np.float32(0), np.float32(0)
        for value in range(_BINS - 1):
            if not counts[k, value]:
                continue
            low += sums[k, value]
            few += counts[k, value]
            if few < _LEAST_EXAMPLES or number - few < _LEAST_EXAMPLES:
                continue
            high = total - low
            gain = low * low / (few + _RIDGE)
            gain += high * high / (number - few + _RIDGE)
            if gain > best:
                best, feature, limit = gain, k, value
    return feature, limit
