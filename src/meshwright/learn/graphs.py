"""Graphs as padded arrays of scaled features, and sums over their edges.

Arrays are always arguments of compiled functions: a constant edge list would make XLA
fold the sums over edges while it compiles, which takes half a minute. Letters in shapes:
N nodes, E edges, F features, H width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class GraphArrays:
    """A graph of N nodes and E edges, both padded; an edge goes from sender to receiver.

    features: [N, F]. node_mask: [N], 1 for nodes, 0 for padding.
    by_receiver, by_sender: [2, E], rows receiver and sender, sorted by the one or the
        other. Padding edges join the last node, which is padding, to itself.
    per_senders, per_receivers: [N], 1 over the number of senders to a node, and of
        receivers from it.
    """

    features: Any
    node_mask: Any
    by_receiver: Any
    by_sender: Any
    per_senders: Any
    per_receivers: Any

    @classmethod
    def padded(
        cls,
        features: NDArray[Any],
        edges: NDArray[np.int64],
        num_nodes: int,
        num_edges: int,
    ) -> GraphArrays:
        """The arrays of a graph with `edges` [e, 2], rows (receiver, sender).

        num_nodes, num_edges: N and E; N is larger than the number of nodes.
        """
        filled = np.full((num_edges, 2), num_nodes - 1)
        filled[: len(edges)] = edges
        return cls(
            features=pad_rows(features, num_nodes),
            node_mask=pad_rows(np.ones(len(features), np.float32), num_nodes),
            by_receiver=_sorted_edges(filled, 0),
            by_sender=_sorted_edges(filled, 1),
            per_senders=_inverse_counts(edges[:, 0], num_nodes),
            per_receivers=_inverse_counts(edges[:, 1], num_nodes),
        )


def signed_log(numbers: NDArray[Any]) -> NDArray[Any]:
    """sign(x) log(1 + |x|) of each number."""
    return np.sign(numbers) * np.log1p(np.abs(numbers))


def moments(
    rows: NDArray[np.float32],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and 1 / standard deviation of each column; 0 for a constant one."""
    deviation = rows.std(axis=0)
    scale = np.where(deviation > 1e-6, 1 / np.maximum(deviation, 1e-6), 0)
    return rows.mean(axis=0).astype(np.float32), scale.astype(np.float32)


def pad_rows(rows: NDArray[Any], length: int, value: int = 0) -> NDArray[Any]:
    """The rows, followed by rows of `value`, `length` in all."""
    rest = ((0, length - len(rows)),) + ((0, 0),) * (rows.ndim - 1)
    return np.pad(rows, rest, constant_values=value)


def padded_size(count: int) -> int:
    """The smallest of 128, 512, 2048, ... that is at least `count`.

    Each size is compiled once, which takes longer than the padding.
    """
    size = 128
    while size < count:
        size *= 4
    return size


def inner_edges(
    edges: NDArray[np.int64], nodes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The edges [e, 2] between two of `nodes`, as positions within `nodes`."""
    if len(nodes) == 0 or len(edges) == 0:
        return np.zeros((0, 2), np.int64)
    places = np.minimum(np.searchsorted(nodes, edges), len(nodes) - 1)
    return places[(nodes[places] == edges).all(axis=1)]


def sum_of_senders(graph: GraphArrays, x: Any) -> Any:
    """Sum of x [N, ..., H] over the senders to each node."""
    receivers, senders = graph.by_receiver
    return jax.ops.segment_sum(x[senders], receivers, len(x), indices_are_sorted=True)


def sum_of_receivers(graph: GraphArrays, x: Any) -> Any:
    """Sum of x [N, ..., H] over the receivers from each node."""
    receivers, senders = graph.by_sender
    return jax.ops.segment_sum(x[receivers], senders, len(x), indices_are_sorted=True)


def mean_of_senders(graph: GraphArrays, x: Any) -> Any:
    """Mean of x [N, ..., H] over the senders to each node; 0 if there are none."""
    shares = graph.per_senders.reshape(-1, *(1,) * (x.ndim - 1))
    return sum_of_senders(graph, x) * shares


def mean_of_receivers(graph: GraphArrays, x: Any) -> Any:
    """Mean of x [N, ..., H] over the receivers from each node; 0 if there are none."""
    shares = graph.per_receivers.reshape(-1, *(1,) * (x.ndim - 1))
    return sum_of_receivers(graph, x) * shares


def _sorted_edges(edges: NDArray[np.int64], column: int) -> NDArray[np.int32]:
    order = np.argsort(edges[:, column], kind="stable")
    return edges[order].T.astype(np.int32)


def _inverse_counts(ends: NDArray[np.int64], num_nodes: int) -> NDArray[np.float32]:
    counts = np.bincount(ends, minlength=num_nodes)
    return (1 / np.maximum(counts, 1)).astype(np.float32)
