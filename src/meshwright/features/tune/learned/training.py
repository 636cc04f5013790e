"""The training loop: epochs over graphs, with a curve, checkpoints and resumption."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from meshwright.errors import LearnedError
from meshwright.features.tune.learned.measured_graph import MeasuredGraph
from meshwright.features.tune.learned.segments import (
    SegmentedGraph,
    make_head_step,
    make_step,
    train_segments,
)
from meshwright.features.tune.learned.trained_model import (
    CurvePoint,
    TrainedModel,
    TrainingConfig,
    check_collection,
)
from meshwright.learn.ranking import Ranking


@dataclass(frozen=True, slots=True)
class ModelCheckpoints:
    """A file to which training saves its state every `every` epochs, and resumes from."""

    path: Path
    every: int = 10


def train(
    graphs: Sequence[MeasuredGraph],
    config: TrainingConfig,
    *,
    valid: Sequence[MeasuredGraph] = (),
    start: TrainedModel | None = None,
    checkpoints: ModelCheckpoints | None = None,
    on_epoch: Callable[[CurvePoint], None] = lambda point: None,
) -> TrainedModel:
    """Train a model to rank the configurations of each graph.

    If the checkpoint exists already, training resumes from it, with the same result as
    without the interruption. Otherwise it begins with the parameters and the scaling of
    `start`, a model of the same network, or with random ones. The `valid` graphs are only
    evaluated, ten times in the whole training.
    """
    usable = _usable_graphs(graphs, valid, config)
    if checkpoints and checkpoints.path.exists():
        model = _resume(checkpoints.path, config)
    else:
        model = _begin(usable, config, start)
    optimizer = make_optimizer(config.weight_decay)
    state = _optimizer_state(model, optimizer)
    segmented = [SegmentedGraph.of(measured, model) for measured in usable]
    step = make_step(config.architecture, config.loss, optimizer)
    head_step = make_head_step(config.loss, optimizer)
    for epoch in range(len(model.curve), config.epochs):
        random, losses = np.random.default_rng([config.seed, epoch]), list[float]()
        for place, number in enumerate(random.permutation(len(segmented))):
            done = epoch + place / len(segmented)
            graph, rate = segmented[number], learning_rate(config, done / config.epochs)
            if _is_head_epoch(config, epoch):
                params, state, loss = head_step(rate, model, graph, state, random)
            else:
                step_fn = partial(step, rate)
                params, state, loss = train_segments(
                    model, graph, state, step_fn, random
                )
            model = model.with_params(params)
            losses.append(loss)
        opa = _valid_opa(model, valid, epoch)
        point = CurvePoint(epoch, float(np.mean(losses)), opa)
        model = replace(model, curve=(*model.curve, point))
        on_epoch(point)
        is_due = checkpoints is not None and (epoch + 1) % checkpoints.every == 0
        if checkpoints and (is_due or epoch + 1 == config.epochs):
            _with_state(model, state, segmented).save(checkpoints.path)
    return _with_state(model, state, segmented)


def _usable_graphs(
    graphs: Sequence[MeasuredGraph],
    valid: Sequence[MeasuredGraph],
    config: TrainingConfig,
) -> list[MeasuredGraph]:
    """The graphs with at least two different times to rank, in the given order.

    Raises `LearnedError` if there is none, or if a graph is of the other collection.
    """
    for measured in (*graphs, *valid):
        check_collection(config.network.collection, measured)
    usable = [g for g in graphs if len(np.unique(g.targets)) > 1]
    if not usable:
        raise LearnedError(
            f"none of {len(graphs)} graphs has two configurations with different times: "
            "there is nothing to rank"
        )
    _require_names(usable)
    return usable


@cache
def make_optimizer(weight_decay: float) -> Any:
    """AdamW (Loshchilov and Hutter, ICLR 2019) with clipped gradients.

    Its updates are for a learning rate of 1, and are multiplied by each step's own.
    """
    try:
        import optax
    except ImportError as missing:
        raise LearnedError(
            "training needs the package optax: install the extra `meshwright[learned]`"
        ) from missing
    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.scale_by_adam(),
        optax.add_decayed_weights(weight_decay),
    )


def learning_rate(config: TrainingConfig, share: float) -> float:
    """The learning rate after a share of all steps: linear warm-up, then a cosine."""
    if share < config.warmup:
        return config.learning_rate * share / config.warmup
    rest = (share - config.warmup) / (1 - config.warmup)
    return config.learning_rate * (1 + math.cos(math.pi * rest)) / 2


def evaluate(
    model: TrainedModel, graphs: Sequence[MeasuredGraph], repeats: int = 1
) -> list[Ranking]:
    """Metrics of a model's ranking of configurations, one `Ranking` per graph."""
    scores = (model.scores(measured, repeats=repeats) for measured in graphs)
    return [Ranking.of(s, g.targets) for s, g in zip(scores, graphs, strict=True)]


def _require_names(graphs: Sequence[MeasuredGraph]) -> None:
    """Raise if two graphs have one name, by which checkpoints store scores."""
    names = [measured.name for measured in graphs]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise LearnedError(
            f"two graphs are named {twice[0]!r}: train on collections with distinct names, "
            "such as one folder of TpuGraphs at a time"
        )


def _resume(path: Path, config: TrainingConfig) -> TrainedModel:
    """Read a model from a checkpoint, if that belongs to the same training."""
    model = TrainedModel.load(path)
    if model.config != config:
        raise LearnedError(
            f"{path} was trained with {model.config}, not with {config}: give the same "
            "options to go on, or another file"
        )
    return model


def _begin(
    graphs: Sequence[MeasuredGraph], config: TrainingConfig, start: TrainedModel | None
) -> TrainedModel:
    """A model before its first epoch, with random parameters or those of `start`."""
    if start is None:
        return TrainedModel.new(config, graphs)
    known = start.config
    same = (known.network, known.architecture)
    if same != (config.network, config.architecture):
        raise LearnedError(
            f"the model to start from is {same}, not {config.network}, "
            f"{config.architecture}: give the same network"
        )
    return TrainedModel(config, start.scaler, start.params)


def _optimizer_state(model: TrainedModel, optimizer: Any) -> Any:
    state = optimizer.init(model.params)
    if not model.optimizer_state:
        return state
    return jax.tree.unflatten(jax.tree.structure(state), model.optimizer_state)


def _with_state(
    model: TrainedModel, state: Any, graphs: Sequence[SegmentedGraph]
) -> TrainedModel:
    """The model with the optimizer's state and stored scores, for a checkpoint."""
    leaves = tuple(np.asarray(leaf) for leaf in jax.tree.leaves(state))
    table: dict[str, Any] = {}
    if model.config.segments:
        table = {graph.measured.name: graph.table for graph in graphs}
    return replace(model, optimizer_state=leaves, table=table)


def _is_head_epoch(config: TrainingConfig, epoch: int) -> bool:
    return config.segments is not None and (
        epoch >= config.epochs - config.segments.head_epochs
    )


def _valid_opa(
    model: TrainedModel, valid: Sequence[MeasuredGraph], epoch: int
) -> float:
    """The mean OPA over the validation graphs; NaN in epochs that are not evaluated."""
    epochs = model.config.epochs
    is_due = (epoch + 1) % math.ceil(epochs / 10) == 0 or epoch + 1 == epochs
    if not valid or not is_due:
        return math.nan
    return Ranking.mean(evaluate(model, valid)).opa
