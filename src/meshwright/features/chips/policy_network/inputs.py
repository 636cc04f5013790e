"""The ops of a partition as features and edges, padded for the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.features.tune.learned.graph_arrays import GraphArrays

NUM_FEATURES = 18
"""Features of an op."""

NUM_MOVES = 3
"""Down one chip, stay, up one chip."""


@dataclass(frozen=True, slots=True, eq=False)
class PolicyInputs:
    """Features and edges of the N ops of a partition.

    features: [N, 18], about 0 to 1. prior: [N, 3], log probabilities of the moves before
    training, not normalised. edges: [E, 2], source and target of each edge.
    """

    features: NDArray[np.float32]
    prior: NDArray[np.float32]
    edges: NDArray[np.int64]

    def padded(self) -> tuple[GraphArrays, NDArray[np.float32]]:
        """The network's input arrays and the prior, padded to one of a few sizes."""
        count, nodes = len(self.features), _size(len(self.features) + 1)
        sources, targets = self.edges.T
        length = _size(len(self.edges))
        return GraphArrays(
            features=_pad(self.features, nodes),
            opcodes=np.zeros(nodes, np.int32),
            layouts=np.zeros((nodes, 0), np.int32),
            node_mask=_pad(np.ones(count, np.float32), nodes),
            by_user=_sorted(targets, sources, length, nodes),
            by_operand=_sorted(targets, sources, length, nodes, by=1),
            per_operands=_inverse_counts(targets, nodes),
            per_users=_inverse_counts(sources, nodes),
            config_nodes=np.zeros(0, np.int32),
        ), _pad(self.prior, nodes)


def _size(count: int) -> int:
    """The smallest of 128, 512, 2048, ... that is at least `count`.

    Each size is compiled once, which takes longer than the padding.
    """
    size = 128
    while size < count:
        size *= 4
    return size


def _pad(rows: NDArray[Any], length: int) -> NDArray[Any]:
    rest = ((0, length - len(rows)),) + ((0, 0),) * (rows.ndim - 1)
    return np.pad(rows, rest)


def _sorted(
    users: NDArray[Any], operands: NDArray[Any], length: int, nodes: int, by: int = 0
) -> NDArray[np.int32]:
    """The edges as rows (user, operand), [2, length], sorted by row number `by`.

    Edges that pad the array connect the last node to itself.
    """
    pairs = np.stack([users, operands])
    pairs = pairs[:, np.argsort(pairs[by], kind="stable")]
    padding = np.full((2, length - pairs.shape[1]), nodes - 1)
    return np.concatenate([pairs, padding], axis=1).astype(np.int32)


def _inverse_counts(ends: NDArray[Any], nodes: int) -> NDArray[np.float32]:
    counts = np.bincount(ends, minlength=nodes)
    return (1 / np.maximum(counts, 1)).astype(np.float32)
