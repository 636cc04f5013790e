"""Networks and losses against dense matrices, enumeration and symmetries."""

import itertools
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshwright.features.tune.learned import (
    Architecture,
    Collection,
    Lesson,
    NetworkConfig,
    TrainedModel,
    TrainingConfig,
)
from meshwright.features.tune.learned.graph_arrays import (
    Scaler,
    config_arrays,
    graph_parts,
    kept_by_pruning,
)
from meshwright.features.tune.learned.hlo_graph import HloGraph
from meshwright.features.tune.learned.network import (
    graph_scores,
    init_params,
    mean_of_operands,
    mean_of_users,
    node_vectors,
)
from meshwright.features.tune.learned.trained_model import ARCHITECTURES
from meshwright.learn.losses import list_mle, pairwise_hinge
from tests.features.tune.learned.synthetic import kernel, layout_program

ALL = frozenset(Lesson)
WHOLE = ALL - {Lesson.PRUNING}


def config_of(measured, lessons=WHOLE, architecture=Architecture.OURS):
    network = NetworkConfig(measured.collection, lessons, width=8, num_layers=1)
    return TrainingConfig(network, 0, epochs=2, architecture=architecture)


def inputs_of(measured, lessons=WHOLE, num_nodes=None):
    """Arrays and all configurations of the first part of a graph."""
    scaler = Scaler.fit([measured], lessons)
    part = graph_parts(measured, scaler, lessons, num_nodes)[0]
    configs = config_arrays(measured, np.arange(measured.num_configs), part, scaler)
    return part.arrays, configs


def renumbered(measured, order):
    """The same program with its nodes in another order."""
    places = np.argsort(order)
    graph = measured.graph
    edges = places[graph.edge_index]
    moved = HloGraph(
        graph.node_feat[order], graph.node_opcode[order], edges, graph.node_splits
    )
    nodes = places[measured.config_nodes]
    by_place = np.argsort(nodes)
    return replace(
        measured,
        graph=moved,
        config_nodes=nodes[by_place],
        config_feat=measured.config_feat[:, by_place],
    )


def test_means_over_neighbours_are_those_of_a_dense_matrix():
    measured = layout_program(9, 3)
    extra = np.array([[8, 0], [8, 2], [5, 0]])
    edges = np.concatenate([measured.graph.edge_index, extra])
    measured = replace(measured, graph=replace(measured.graph, edge_index=edges))
    arrays, _ = inputs_of(measured)
    size = len(arrays.opcodes)
    adjacency = np.zeros((size, size))
    adjacency[tuple(edges.T)] = 1
    x = np.random.default_rng(0).normal(size=(size, 2, 3)).astype(np.float32)
    x[9:] = 0
    for found, matrix in (
        (mean_of_operands(arrays, x), adjacency),
        (mean_of_users(arrays, x), adjacency.T),
    ):
        count = np.maximum(matrix.sum(axis=1), 1)[:, None, None]
        expected = np.einsum("uv,vch->uch", matrix, x) / count
        np.testing.assert_allclose(found[:9], expected[:9], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("lessons", [ALL, WHOLE, WHOLE - {Lesson.EARLY_JOIN}])
def test_scores_follow_configurations_and_not_the_order_of_nodes(lessons):
    measured = layout_program(12, 8)
    model = TrainedModel.new(config_of(measured, lessons), [measured])
    scores = model.scores(measured)
    assert np.ptp(scores) > 1e-3
    order = np.array([3, 1, 0, 2, 5, 4, 7, 6])
    np.testing.assert_allclose(
        model.scores(measured.take(order)), scores[order], rtol=1e-4, atol=1e-4
    )
    nodes = np.random.default_rng(0).permutation(12)
    found = model.scores(renumbered(measured, nodes))
    np.testing.assert_allclose(found, scores, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("architecture", Architecture)
def test_padding_changes_no_score(architecture):
    is_tile = architecture is not Architecture.LAYOUT_BASELINE
    measured = kernel(6) if is_tile else layout_program(12, 6)
    model = TrainedModel.new(config_of(measured, architecture=architecture), [measured])
    arrays, configs = inputs_of(measured)
    score_fn = jax.jit(ARCHITECTURES[architecture][1])
    scores = score_fn(model.params, arrays, configs, np.ones(6, np.float32))
    padded = np.concatenate([configs, 3 * configs[:2]])
    mask = np.array([1] * 6 + [0] * 2, np.float32)
    found = score_fn(model.params, arrays, padded, mask)
    np.testing.assert_allclose(found[:6], scores, rtol=1e-4, atol=1e-5)
    assert np.ptp(scores) > 0


def test_cross_configuration_attention_makes_scores_depend_on_the_rivals():
    measured = kernel(6)
    arrays, configs = inputs_of(measured)
    rivals = configs.copy()
    rivals[1:] += 1
    mask = np.ones(6, np.float32)
    for lessons, depends in ((WHOLE, True), (WHOLE - {Lesson.CROSS_CONFIG}, False)):
        network = NetworkConfig(Collection.TILE, lessons, width=8, num_layers=1)
        params = init_params(jax.random.key(0), network, arrays.features.shape[1])
        one = jax.jit(graph_scores)(params, arrays, configs, mask)[0]
        other = jax.jit(graph_scores)(params, arrays, rivals, mask)[0]
        assert (abs(one - other) > 1e-5) == depends


def test_a_late_join_passes_no_configuration_over_edges():
    measured = layout_program(12, 4)
    lessons = WHOLE - {Lesson.EARLY_JOIN}
    model = TrainedModel.new(config_of(measured, lessons), [measured])
    arrays, configs = inputs_of(measured, lessons)
    score = jax.jit(node_vectors)
    vectors, _ = score(model.params, arrays, configs, np.ones(4, np.float32))
    assert vectors.shape[1] == 1


def test_pruning_keeps_configurable_nodes_and_their_neighbours():
    measured = layout_program(12, 4)
    measured = replace(
        measured,
        config_nodes=np.array([0, 6]),
        config_feat=measured.config_feat[:, :2],
    )
    assert kept_by_pruning(measured).tolist() == [0, 1, 5, 6, 7]
    arrays, configs = inputs_of(measured, ALL)
    assert arrays.node_mask.sum() == 5
    assert arrays.config_nodes[:2].tolist() == [0, 3]
    pairs = {tuple(edge) for edge in arrays.by_user.T.tolist()}
    padding = len(arrays.opcodes) - 1
    assert pairs - {(padding, padding)} == {(1, 0), (3, 2), (4, 3)}
    assert configs.shape == (4, len(arrays.config_nodes), 18)


def test_constant_features_are_dropped_and_others_have_unit_variance():
    measured = layout_program(50, 4)
    scaler = Scaler.fit([measured], WHOLE)
    arrays, _ = inputs_of(measured)
    features = arrays.features[:50]
    constant = scaler.node_scale == 0
    assert constant[0]
    assert not constant[21]
    assert (features[:, constant] == 0).all()
    np.testing.assert_allclose(features[:, ~constant].std(axis=0), 1, rtol=1e-3)


def test_list_mle_is_the_likelihood_of_drawing_the_true_order():
    scores, times = np.array([0.3, -1.0, 2.0, 0.5]), np.array([2.0, 1.0, 4.0, 3.0])
    merits = np.exp(-scores)
    order = [1, 0, 3, 2]
    expected = 1.0
    for place, item in enumerate(order):
        expected *= merits[item] / sum(merits[i] for i in order[place:])
    padded = np.append(scores, 9.0), np.append(times, 0.5), np.array([1, 1, 1, 1, 0.0])
    assert list_mle(*padded) == pytest.approx(-math.log(expected) / 4, rel=1e-5)
    likelihood = jax.jit(list_mle)
    drawn = sum(  # the likelihoods of all orders add up to 1
        math.exp(-4 * float(likelihood(scores, np.argsort(order), np.ones(4))))
        for order in itertools.permutations(range(4))
    )
    assert drawn == pytest.approx(1, rel=1e-4)


def test_the_hinge_is_the_mean_over_pairs_with_different_times():
    scores, times = [0.3, -1.0, 2.0, 0.5, 9.0], [2.0, 1.0, 2.0, 3.0, 0.5]
    shortfalls = [
        max(0.0, 1 - (scores[i] - scores[j]))
        for i, j in itertools.permutations(range(4), 2)
        if times[i] > times[j]
    ]
    mask = np.array([1, 1, 1, 1, 0.0])
    found = pairwise_hinge(jnp.array(scores), jnp.array(times), mask)
    assert found == pytest.approx(np.mean(shortfalls), rel=1e-6)
