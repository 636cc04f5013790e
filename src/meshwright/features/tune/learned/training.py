"""The training of models on measured graphs, by the loop of `meshwright.learn`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from meshwright.errors import LearnedError
from meshwright.features.tune.learned.baselines import Scorer
from meshwright.features.tune.learned.measured_graph import MeasuredGraph
from meshwright.features.tune.learned.network import head_scores, node_vectors
from meshwright.features.tune.learned.trained_model import (
    ARCHITECTURES,
    TrainedModel,
    TrainingConfig,
    check_collection,
)
from meshwright.learn.layers import Params
from meshwright.learn.optimizers import adamw
from meshwright.learn.ranking import Ranking
from meshwright.learn.segments import (
    WHOLE,
    SegmentedGraph,
    SummedNetwork,
    make_head_step,
    make_step,
    train_segments,
)
from meshwright.learn.training import (
    CurvePoint,
    ModelCheckpoints,
    TrainingState,
    train_epochs,
)


def train(
    graphs: Sequence[MeasuredGraph],
    config: TrainingConfig,
    *,
    valid: Sequence[MeasuredGraph] = (),
    checkpoints: ModelCheckpoints | None = None,
    on_epoch: Callable[[CurvePoint], None] = lambda point: None,
) -> TrainedModel:
    """Train a model to rank the configurations of each graph.

    If the checkpoint exists already, training resumes from it, with the same result as
    without the interruption. The `valid` graphs are only evaluated, ten times in the whole
    training: their mean OPA is the curve's score.
    """
    usable = _usable_graphs(graphs, valid, config)
    if checkpoints and checkpoints.path.exists():
        model = _resume(checkpoints.path, config)
    else:
        model = TrainedModel.new(config, usable)
    optimizer = adamw(config.weight_decay)
    state = _optimizer_state(model, optimizer)
    first = progress = TrainingState(model.params, state, model.curve)
    segmented = {measured.name: segmented_graph(measured, model) for measured in usable}

    def valid_opa(params: Params) -> float:
        rankings = evaluate(replace(model, params=params).scores, valid)
        return Ranking.mean(rankings).opa if rankings else np.nan

    for progress in train_epochs(
        first,
        list(segmented.values()),
        config.schedule,
        _make_steps(config, optimizer),
        valid_opa,
    ):
        point = progress.curve[-1]
        on_epoch(point)
        if checkpoints and checkpoints.is_due(point.epoch, config.epochs):
            _with_progress(model, progress, segmented).save(checkpoints.path)
    return _with_progress(model, progress, segmented)


def segmented_graph(measured: MeasuredGraph, model: TrainedModel) -> SegmentedGraph:
    """A graph in the segments of a model's training, with the scores that it stores."""
    input_fns = model.input_fns(measured)
    shape = (measured.num_configs, len(input_fns))
    stored = model.table.get(measured.name, np.full(shape, np.nan, np.float32))
    return SegmentedGraph(
        measured.targets, stored.copy(), model.config.configs_per_step, input_fns
    )


def _make_steps(config: TrainingConfig, optimizer: Any) -> Callable[..., Any]:
    """The step of `train_epochs`: of segments, or in the last epochs of the last layers."""
    options = config.segments or WHOLE
    _, score_fn = ARCHITECTURES[config.architecture]
    step = make_step(score_fn, config.loss, optimizer)
    network = SummedNetwork(node_vectors, head_scores)
    head_step = make_head_step(network, config.loss, optimizer)

    def train_one(
        params: Params,
        state: Any,
        graph: SegmentedGraph,
        epoch: int,
        rate: float,
        random: np.random.Generator,
    ) -> tuple[Params, Any, float]:
        if epoch >= config.epochs - options.head_epochs:
            return head_step(rate, params, state, graph, random)
        step_fn = partial(step, rate)
        return train_segments(params, state, graph, options, step_fn, random)

    return train_one


def _usable_graphs(
    graphs: Sequence[MeasuredGraph],
    valid: Sequence[MeasuredGraph],
    config: TrainingConfig,
) -> list[MeasuredGraph]:
    """The graphs with at least two different times to rank, in the given order.

    Raises `LearnedError` if there is none, if a graph is of the other collection, or if
    two graphs have one name, by which checkpoints store scores.
    """
    for measured in (*graphs, *valid):
        check_collection(config.network.collection, measured)
    usable = [g for g in graphs if len(np.unique(g.targets)) > 1]
    if not usable:
        raise LearnedError(
            f"none of {len(graphs)} graphs has two configurations with different times: "
            "there is nothing to rank"
        )
    names = [measured.name for measured in usable]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise LearnedError(
            f"two graphs are named {twice[0]!r}: train on collections with distinct names, "
            "such as one folder of TpuGraphs at a time"
        )
    return usable


def evaluate(scorer: Scorer, graphs: Sequence[MeasuredGraph]) -> list[Ranking]:
    """Metrics of a ranking of configurations, such as a model's, for each graph."""
    return [Ranking.of(scorer(each), each.targets) for each in graphs]


def _resume(path: Path, config: TrainingConfig) -> TrainedModel:
    """Read a model from a checkpoint, if that belongs to the same training."""
    model = TrainedModel.load(path)
    if model.config != config:
        raise LearnedError(
            f"{path} was trained with {model.config}, not with {config}: give the same "
            "options to go on, or another file"
        )
    return model


def _optimizer_state(model: TrainedModel, optimizer: Any) -> Any:
    state = optimizer.init(model.params)
    if not model.optimizer_state:
        return state
    return jax.tree.unflatten(jax.tree.structure(state), model.optimizer_state)


def _with_progress(
    model: TrainedModel, progress: TrainingState, graphs: Mapping[str, SegmentedGraph]
) -> TrainedModel:
    """The model after some epochs, with what continues its training.

    graphs: the training graphs by name.
    """
    leaves = tuple(np.asarray(leaf) for leaf in jax.tree.leaves(progress.state))
    table: dict[str, Any] = {}
    if model.config.segments:
        table = {name: graph.table for name, graph in graphs.items()}
    return replace(
        model,
        params=progress.params,
        curve=progress.curve,
        optimizer_state=leaves,
        table=table,
    )
