"""The ops of a partition as features and edges, padded for the network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.learn.graphs import GraphArrays, pad_rows, padded_size

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
        nodes, edges = padded_size(len(self.features) + 1), self.edges[:, ::-1]
        graph = GraphArrays.padded(self.features, edges, nodes, padded_size(len(edges)))
        return graph, pad_rows(self.prior, nodes)
