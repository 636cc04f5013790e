"""Networks of cost models against symmetries, and their arrays against small cases."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from meshwright.features.tune.learned.graph_arrays import (
    Lesson,
    Scaler,
    graph_inputs,
    kept_by_pruning,
)
from meshwright.features.tune.learned.hlo_graph import HloGraph
from meshwright.features.tune.learned.measured_graph import Collection
from meshwright.features.tune.learned.network import (
    NetworkConfig,
    graph_scores,
    init_params,
    node_vectors,
)
from meshwright.features.tune.learned.trained_model import (
    ARCHITECTURES,
    Architecture,
    TrainedModel,
    TrainingConfig,
)
from tests.features.tune.learned.synthetic import kernel, layout_program

ALL = frozenset(Lesson)
WHOLE = ALL - {Lesson.PRUNING}


def config_of(measured, lessons=WHOLE, architecture=Architecture.OURS):
    network = NetworkConfig(measured.collection, lessons, width=8, num_layers=1)
    return TrainingConfig(network, 0, epochs=2, architecture=architecture)


def inputs_of(measured, lessons=WHOLE, num_nodes=None):
    """Arrays and all configurations of the first part of a graph."""
    scaler = Scaler.fit([measured], lessons)
    input_fn = graph_inputs(measured, scaler, lessons, num_nodes)[0]
    return input_fn(np.arange(measured.num_configs))


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


@pytest.mark.parametrize("lessons", [ALL, WHOLE, WHOLE - {Lesson.EARLY_JOIN}])
def test_scores_follow_configurations_and_not_the_order_of_nodes(lessons):
    measured = layout_program(12, 8)
    model = TrainedModel.new(config_of(measured, lessons), [measured])
    scores = model.scores(measured)
    assert np.ptp(scores) > 1e-3
    order = np.array([3, 1, 0, 2, 5, 4, 7, 6])
    reordered = replace(measured, config_feat=measured.config_feat[order])
    np.testing.assert_allclose(
        model.scores(reordered), scores[order], rtol=1e-4, atol=1e-4
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
        params = init_params(jax.random.key(0), network, arrays.graph.features.shape[1])
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
    assert arrays.graph.node_mask.sum() == 5
    assert arrays.config_nodes[:2].tolist() == [0, 3]
    pairs = {tuple(edge) for edge in arrays.graph.by_receiver.T.tolist()}
    padding = len(arrays.opcodes) - 1
    assert pairs - {(padding, padding)} == {(1, 0), (3, 2), (4, 3)}
    assert configs.shape == (4, len(arrays.config_nodes), 18)


def test_constant_features_are_dropped_and_others_have_unit_variance():
    measured = layout_program(50, 4)
    scaler = Scaler.fit([measured], WHOLE)
    arrays, _ = inputs_of(measured)
    features = arrays.graph.features[:50]
    constant = scaler.node_scale == 0
    assert constant[0]
    assert not constant[21]
    assert (features[:, constant] == 0).all()
    np.testing.assert_allclose(features[:, ~constant].std(axis=0), 1, rtol=1e-3)
