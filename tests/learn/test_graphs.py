"""Sums over edges, convolutions and scaling against dense matrices."""

import jax
import numpy as np
import pytest

from meshwright.learn.graphs import (
    GraphArrays,
    inner_edges,
    mean_of_receivers,
    mean_of_senders,
    moments,
    signed_log,
)
from meshwright.learn.layers import dense, sage_convolution

EDGES = np.array([[i, i - 1] for i in range(1, 9)] + [[8, 0], [8, 2], [5, 0]])
"""Rows (receiver, sender) of a graph of nine nodes."""


def graph():
    return GraphArrays.padded(np.ones((9, 4), np.float32), EDGES, 12, 16)


def dense_means(x):
    """Means of x [12, ...] over the senders to each node, and over receivers from it."""
    adjacency = np.zeros((12, 12))
    adjacency[tuple(EDGES.T)] = 1
    for matrix in (adjacency, adjacency.T):
        count = np.maximum(matrix.sum(axis=1), 1)
        yield np.einsum("uv,v...->u...", matrix / count[:, None], x)


@pytest.mark.parametrize("shape", [(12, 3), (12, 2, 3)])
def test_means_over_neighbours_are_those_of_a_dense_matrix(shape):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    x[9:] = 0
    found = mean_of_senders(graph(), x), mean_of_receivers(graph(), x)
    for mean, expected in zip(found, dense_means(x), strict=True):
        np.testing.assert_allclose(mean[:9], expected[:9], rtol=1e-5, atol=1e-6)


def test_a_convolution_adds_affine_maps_of_a_node_and_of_both_means():
    maps = [dense(jax.random.key(i), 3, 3) for i in range(3)]
    x = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    x[9:] = 0
    itself, senders, receivers = (x @ each["kernel"] for each in maps)
    before, _ = dense_means(senders)
    _, after = dense_means(receivers)
    expected = jax.nn.gelu(itself + before + after)
    found = sage_convolution(graph(), x, *maps)
    np.testing.assert_allclose(found[:9], expected[:9], rtol=1e-4, atol=1e-5)


def test_padding_has_no_mask_and_edges_of_its_own():
    arrays = graph()
    assert arrays.node_mask.tolist() == [1] * 9 + [0] * 3
    assert arrays.features.shape == (12, 4)
    for edges in (arrays.by_receiver, arrays.by_sender):
        pairs = sorted(map(tuple, edges.T.tolist()))
        assert pairs == sorted([*map(tuple, EDGES.tolist()), *[(11, 11)] * 5])
    assert (np.diff(arrays.by_receiver[0]) >= 0).all()
    assert (np.diff(arrays.by_sender[1]) >= 0).all()


def test_inner_edges_are_numbered_within_the_chosen_nodes():
    assert inner_edges(EDGES, np.array([0, 2, 3, 8])).tolist() == [
        [2, 1],
        [3, 0],
        [3, 1],
    ]
    assert inner_edges(EDGES, np.array([], int)).shape == (0, 2)


def test_scaled_columns_have_unit_variance_and_constant_ones_are_0():
    rows = np.array([[1, 5], [2, 5], [6, 5]], np.float32)
    mean, scale = moments(rows)
    scaled = (rows - mean) * scale
    np.testing.assert_allclose(scaled.std(axis=0), [1, 0], rtol=1e-5)
    assert (scaled[:, 1] == 0).all()
    found = signed_log(np.array([-1.0, 0.0, 1.0]))
    np.testing.assert_allclose(found, [-np.log(2), 0, np.log(2)])
