"""Training: what it learns, what it resumes, and segments against whole graphs."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import optax
import pytest

from meshwright.errors import LearnedError
from meshwright.features.tune.learned.data_files import write_npz
from meshwright.features.tune.learned.graph_arrays import Lesson
from meshwright.features.tune.learned.measured_graph import Collection
from meshwright.features.tune.learned.network import (
    NetworkConfig,
    graph_scores,
    head_scores,
    node_vectors,
)
from meshwright.features.tune.learned.trained_model import (
    ARCHITECTURES,
    Architecture,
    TrainedModel,
    TrainingConfig,
    batches,
)
from meshwright.features.tune.learned.training import evaluate, segmented_graph, train
from meshwright.learn.losses import LOSSES, Loss
from meshwright.learn.ranking import Ranking
from meshwright.learn.segments import (
    WHOLE,
    SegmentOptions,
    SummedNetwork,
    make_head_step,
    make_step,
    train_segments,
)
from meshwright.learn.training import ModelCheckpoints
from tests.features.tune.learned.synthetic import kernel, layout_program

LAYOUT = NetworkConfig(Collection.LAYOUT, width=8, num_layers=1)
PLAIN = optax.identity()  # gradient descent
TILE = NetworkConfig(Collection.TILE, width=8, num_layers=1)


def small(network=LAYOUT, **options):
    return TrainingConfig(
        network,
        **{"seed": 0, "epochs": 4, "configs_per_step": 16, **options},
    )


def same_params(one, other):
    pairs = zip(jax.tree.leaves(one.params), jax.tree.leaves(other.params), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("loss", list(Loss))
def test_layouts_of_an_unseen_program_are_ranked(loss):
    config = small(loss=loss, epochs=60, learning_rate=1e-2)
    model = train([layout_program(seed=s) for s in range(6)], config)
    unseen = [layout_program(seed=s) for s in range(9, 12)]
    assert Ranking.mean(evaluate(model.scores, unseen)).tau > 0.75
    assert model.curve[-1].loss < model.curve[0].loss / 2


def test_tilings_of_an_unseen_kernel_are_ranked():
    config = small(TILE, epochs=30, learning_rate=1e-2)
    model = train([kernel(seed=s) for s in range(4)], config)
    ranking = Ranking.mean(evaluate(model.scores, [kernel(seed=9)]))
    assert ranking.tau > 0.7
    assert ranking.top_errors[5] == 0


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="whole"),
        pytest.param(
            {"segments": SegmentOptions(num_nodes=4, trained=2, head_epochs=2)},
            id="segments",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_killed_training_resumes_to_the_same_model(tmp_path, options):
    graphs = [layout_program(seed=s) for s in range(2)]
    config = small(epochs=6, **options)
    kept = ModelCheckpoints(tmp_path / "model.npz", every=2)
    expected = train(graphs, config)

    class Killed(BaseException):
        pass

    def kill(point):
        if point.epoch == 4:
            raise Killed

    with pytest.raises(Killed):
        train(graphs, config, checkpoints=kept, on_epoch=kill)
    assert len(TrainedModel.load(kept.path).curve) == 4
    epochs = []
    found = train(
        graphs, config, checkpoints=kept, on_epoch=lambda p: epochs.append(p.epoch)
    )
    assert epochs == [4, 5]
    assert same_params(found, expected)
    assert [p.loss for p in found.curve] == [p.loss for p in expected.curve]
    assert same_params(TrainedModel.load(kept.path), expected)


def test_a_seed_decides_the_model():
    graphs = [layout_program()]
    assert same_params(train(graphs, small()), train(graphs, small()))
    assert not same_params(train(graphs, small()), train(graphs, small(seed=1)))


def test_a_loaded_model_has_the_same_scores_and_curve(tmp_path):
    graphs = [layout_program(seed=s) for s in range(2)]
    config = small(network=replace(LAYOUT, lessons=frozenset({Lesson.EARLY_JOIN})))
    model = train(graphs, config, valid=graphs)
    model.save(tmp_path / "model.npz")
    found = TrainedModel.load(tmp_path / "model.npz")
    assert found.config == config
    assert found.curve[-1].valid_score == model.curve[-1].valid_score
    np.testing.assert_array_equal(found.scores(graphs[0]), model.scores(graphs[0]))


def test_checkpoints_of_other_options_and_corrupt_ones_are_refused(tmp_path):
    path = tmp_path / "model.npz"
    train([layout_program()], small(epochs=1), checkpoints=ModelCheckpoints(path))
    with pytest.raises(LearnedError, match="give the same options"):
        train([layout_program()], small(epochs=2), checkpoints=ModelCheckpoints(path))
    path.write_bytes(path.read_bytes()[:-900])
    with pytest.raises(LearnedError, match=r"model.npz is no readable npz file"):
        TrainedModel.load(path)
    with pytest.raises(LearnedError, match="is no model of `meshwright learned"):
        TrainedModel.load(write_npz(tmp_path, layout_program()))
    with pytest.raises(LearnedError, match="missing, corrupt"):
        TrainedModel.load(tmp_path / "other.npz")


def test_data_that_cannot_be_ranked_is_refused():
    with pytest.raises(LearnedError, match="tile collection, the model is for layout"):
        train([kernel()], small())
    measured = layout_program()
    with pytest.raises(LearnedError, match="two graphs are named 'program0'"):
        train([measured, measured], small())
    flat = replace(measured, runtime_ns=np.full(measured.num_configs, 7))
    with pytest.raises(LearnedError, match="nothing to rank"):
        train([flat], small())
    with pytest.raises(LearnedError, match="needs a sum over nodes"):
        small(architecture=Architecture.LAYOUT_BASELINE, segments=SegmentOptions())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "network", "graph"),
    [
        (Architecture.TILE_BASELINE, TILE, kernel()),
        (Architecture.LAYOUT_BASELINE, LAYOUT, layout_program()),
    ],
)
def test_the_published_baselines_train(architecture, network, graph):
    config = small(network, architecture=architecture, epochs=15)
    losses = [point.loss for point in train([graph], config).curve]
    assert losses[-1] < losses[0]


def one_step(segments, table_of=None):
    """Parameters and table after one step of plain gradient descent on one graph."""
    measured = layout_program(12, 16)
    config = small(segments=segments)
    model = TrainedModel.new(config, [measured])
    if table_of is not None:
        model = replace(model, table={measured.name: table_of})
    graph, random = segmented_graph(measured, model), np.random.default_rng(0)
    _, score_fn = ARCHITECTURES[config.architecture]
    step = partial(make_step(score_fn, config.loss, PLAIN), 0.1)
    params, state = model.params, PLAIN.init(model.params)
    options = segments or WHOLE
    after = train_segments(params, state, graph, options, step, random)
    return model, graph, after


def test_one_segment_with_all_nodes_is_training_on_the_whole_graph():
    _, _, (whole, _, loss) = one_step(None)
    _, _, (found, _, same_loss) = one_step(SegmentOptions(num_nodes=12))
    assert loss == pytest.approx(same_loss, rel=1e-6)
    jax.tree.map(np.testing.assert_array_equal, whole, found)


def test_all_segments_trained_at_once_give_the_gradient_of_their_sum():
    options = SegmentOptions(num_nodes=4, trained=3)
    model, graph, (found, _, loss) = one_step(options)
    inputs = [input_fn(np.arange(16)) for input_fn in graph.input_fns]
    mask, times = np.ones(16, np.float32), graph.targets

    def summed_loss(params):
        total = sum(graph_scores(params, *pair, mask) for pair in inputs)
        return LOSSES[Loss.HINGE](total, times, mask)

    expected, grads = jax.jit(jax.value_and_grad(summed_loss))(model.params)
    assert loss == pytest.approx(float(expected), rel=1e-5)
    jax.tree.map(
        lambda new, old, g: np.testing.assert_allclose(new, old - 0.1 * g, atol=1e-5),
        found,
        model.params,
        grads,
    )


def test_stored_scores_count_and_missing_ones_are_stood_for():
    options = SegmentOptions(num_nodes=4, trained=1, kept=1.0)
    times = layout_program(12, 16).targets
    known = np.stack([times, times, times], axis=1).astype(np.float32)
    _, graph, (_, _, loss) = one_step(options, known)
    assert loss == 0  # what is stored ranks by far well enough
    missing = np.full((16, 3), np.nan, np.float32)
    model, graph, (_, _, loss) = one_step(options, missing)
    (trained,) = np.flatnonzero(np.isfinite(graph.table).all(axis=0))
    inputs = graph.input_fns[int(trained)](np.arange(16))
    fresh = jax.jit(graph_scores)(model.params, *inputs, np.ones(16, np.float32))
    expected = LOSSES[Loss.HINGE](3 * fresh, times, np.ones(16))
    assert loss == pytest.approx(float(expected), rel=1e-5)
    centred = fresh - fresh.mean()
    np.testing.assert_allclose(graph.table[:, trained], centred, atol=1e-5)


def test_segment_dropout_keeps_the_given_share_and_its_weight_in_expectation():
    options = SegmentOptions(num_nodes=1, trained=2, kept=0.25)
    measured = layout_program(40, 16)
    model = TrainedModel.new(
        small(network=replace(LAYOUT, lessons=frozenset()), segments=options),
        [measured],
    )
    table = np.zeros((16, 40), np.float32)
    graph = segmented_graph(measured, replace(model, table={measured.name: table}))
    weights = []

    def record(params, state, inputs, stale, rest):
        weights.append(rest[0])
        return params, state, 0.0, np.zeros((16, 2))

    random = np.random.default_rng(0)
    for _ in range(400):
        train_segments(model.params, None, graph, options, record, random)
    assert np.mean(weights) == pytest.approx(0.25 + 0.75 * 40 / 2, rel=0.02)


def test_the_head_is_trained_by_its_exact_gradient_and_nothing_else_moves():
    measured = layout_program(12, 16)
    config = small(segments=SegmentOptions(num_nodes=4))
    model = TrainedModel.new(config, [measured])
    graph, state = segmented_graph(measured, model), PLAIN.init(model.params)
    random = np.random.default_rng(0)
    network = SummedNetwork(node_vectors, head_scores)
    step = make_head_step(network, config.loss, PLAIN)
    params, _, loss = step(0.1, model.params, state, graph, random)
    inputs = [input_fn(np.arange(16)) for input_fn in graph.input_fns]
    mask = np.ones(16, np.float32)

    def head_loss(head):
        whole = {**model.params, "head": head}
        total = sum(graph_scores(whole, *pair, mask) for pair in inputs)
        return LOSSES[Loss.HINGE](total, measured.targets, mask)

    expected, grads = jax.jit(jax.value_and_grad(head_loss))(model.params["head"])
    assert loss == pytest.approx(float(expected), rel=1e-4)
    jax.tree.map(
        lambda new, old, g: np.testing.assert_allclose(new, old - 0.1 * g, atol=1e-5),
        params["head"],
        model.params["head"],
        grads,
    )
    body = {name: part for name, part in params.items() if name != "head"}
    for name, part in body.items():
        jax.tree.map(np.testing.assert_array_equal, part, model.params[name])


@pytest.mark.slow
def test_segments_learn_what_whole_graphs_learn():
    options = SegmentOptions(num_nodes=6, trained=1, head_epochs=5)
    config = small(epochs=60, learning_rate=1e-2, segments=options)
    model = train([layout_program(seed=s) for s in range(6)], config)
    ranking = Ranking.mean(evaluate(model.scores, [layout_program(seed=9)]))
    assert ranking.tau > 0.6


def test_batches_cover_each_configuration_once():
    found = batches(20, 8, np.random.default_rng(0))
    assert [len(configs) for configs, _ in found] == [8, 8, 8]
    valid = np.concatenate([configs[mask > 0] for configs, mask in found])
    assert sorted(valid) == list(range(20))
