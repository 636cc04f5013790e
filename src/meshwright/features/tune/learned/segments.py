"""Graph segment training: a step trains a few segments of a large graph.

The other segments enter with scores that were stored when they were last trained.
Reference: Cao et al., Learning Large Graph Property Prediction via Graph Segment Training,
NeurIPS 2023 ("GST+EFD"). Since a graph's score is a sum over nodes, one number per
segment and configuration is stored. Training on whole graphs is the case of one segment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from meshwright.features.tune.learned.graph_arrays import (
    GraphPart,
    config_arrays,
    graph_parts,
)
from meshwright.features.tune.learned.measured_graph import MeasuredGraph
from meshwright.features.tune.learned.network import (
    Params,
    graph_scores,
    head_scores,
    node_vectors,
)
from meshwright.features.tune.learned.trained_model import (
    ARCHITECTURES,
    Architecture,
    SegmentOptions,
    TrainedModel,
)
from meshwright.learn.losses import LOSSES, Loss

WHOLE = SegmentOptions(num_nodes=1, trained=1, kept=0, head_epochs=0)
"""Options of a graph in one part; `num_nodes` is not read."""


@dataclass(frozen=True, slots=True, eq=False)
class SegmentedGraph:
    """A training graph in J segments, with the stored scores of each segment.

    table: [c, J], a segment's score of each configuration when it was last trained,
        minus the mean over that step's configurations; NaN before the first time. It
        is updated in place.
    """

    measured: MeasuredGraph
    parts: tuple[GraphPart, ...]
    table: NDArray[np.float32]

    @classmethod
    def of(cls, measured: MeasuredGraph, model: TrainedModel) -> SegmentedGraph:
        segments = model.config.segments
        parts = graph_parts(
            measured,
            model.scaler,
            model.config.network.lessons,
            segments.num_nodes if segments else None,
        )
        shape = (measured.num_configs, len(parts))
        stored = model.table.get(measured.name, np.full(shape, np.nan, np.float32))
        return cls(measured, parts, stored.copy())

    def inputs(self, model: TrainedModel, part: int, configs: Any) -> tuple[Any, Any]:
        """The arrays of one segment, and the features of configurations in it."""
        chosen = self.parts[part]
        features = config_arrays(self.measured, configs, chosen, model.scaler)
        return chosen.arrays, features


StepFn = Callable[..., tuple[Params, Any, Any, Any]]


@cache
def make_step(architecture: Architecture, loss: Loss, optimizer: Any) -> StepFn:
    """Compile the function that trains on a few segments of one graph.

    Its arguments are the learning rate, parameters, the optimizer's state, the stacked
    inputs of the trained segments, the sum of the stored scores [C], and a tuple of weights
    [C] of the trained segments' scores, times and mask [C]. It returns new parameters and
    state, the loss, and the trained segments' scores [C, S], minus their mean over
    configurations.
    """
    _, score_fn = ARCHITECTURES[architecture]
    loss_fn = LOSSES[loss]
    score_parts: Any = jax.vmap(score_fn, (None, 0, 0, None))

    def step_loss(
        params: Params, inputs: Any, stale: Any, rest: Any
    ) -> tuple[Any, Any]:
        weights, times, mask = rest
        scores = score_parts(params, *inputs, mask).T
        fresh = scores - (scores * mask[:, None]).sum(axis=0) / mask.sum()
        total = stale + weights * fresh.sum(axis=1)
        return loss_fn(total, times, mask), fresh

    gradient: Any = jax.value_and_grad(step_loss, has_aux=True)

    @jax.jit
    def step(
        rate: Any, params: Params, state: Any, *arguments: Any
    ) -> tuple[Params, Any, Any, Any]:
        (loss, fresh), grads = gradient(params, *arguments)
        updates, state = optimizer.update(grads, state, params)
        return descend(params, updates, rate), state, loss, fresh

    return step


def train_segments(
    model: TrainedModel,
    graph: SegmentedGraph,
    state: Any,
    step: StepFn,
    random: np.random.Generator,
) -> tuple[Params, Any, float]:
    """Train one step on random segments of one graph; return parameters, state and loss.

    step: compiled by `make_step`. The score of a trained segment also stands for segments
    whose stored scores are dropped or missing: of J segments S are trained, so that its
    expected weight is kept + (1 - kept) J / S.
    """
    options, num_parts = model.config.segments or WHOLE, len(graph.parts)
    configs, mask = sample_configs(graph, model.config.configs_per_step, random)
    trained = random.permutation(num_parts)[: options.trained]
    is_kept = random.random(num_parts) < options.kept
    is_kept[trained] = False
    stored = np.where(is_kept, graph.table[configs], np.nan)
    weights = np.isnan(stored).sum(axis=1) / len(trained)
    inputs = stack([graph.inputs(model, part, configs) for part in trained])
    rest = (weights.astype(np.float32), graph.measured.targets[configs], mask)
    stale = np.nansum(stored, axis=1)
    params, state, loss, fresh = step(model.params, state, inputs, stale, rest)
    valid = configs[mask > 0]
    graph.table[np.ix_(valid, trained)] = np.asarray(fresh)[mask > 0]
    return params, state, float(loss)


@cache
def make_head_step(loss: Loss, optimizer: Any) -> Callable[..., Any]:
    """Compile the function that trains only the last layers, over all segments.

    Its arguments are the learning rate, the model, a graph, the optimizer's state and a
    random generator. It returns parameters, state and loss.

    To hold one segment in memory at a time, it computes first all scores, then the gradient
    of the loss by the scores, then each segment's part of the gradient by the parameters.
    """
    loss_and_slopes: Any = jax.value_and_grad(LOSSES[loss])

    @jax.jit
    def update(
        rate: Any, params: Params, state: Any, head_grads: Any
    ) -> tuple[Params, Any]:
        zeros = jax.tree.map(jnp.zeros_like, params)
        updates, state = optimizer.update({**zeros, "head": head_grads}, state, params)
        head = descend(params["head"], updates["head"], rate)
        return {**params, "head": head}, state

    def step(
        rate: Any, model: TrainedModel, graph: SegmentedGraph, state: Any, random: Any
    ) -> tuple[Params, Any, float]:
        configs, mask = sample_configs(graph, model.config.configs_per_step, random)
        params, times = model.params, graph.measured.targets[configs]
        parts = range(len(graph.parts))
        total = sum(
            _part_scores(params, graph.inputs(model, part, configs), mask)
            for part in parts
        )
        loss, slopes = loss_and_slopes(total, times, mask)
        gradients = None
        for part in parts:
            inputs = graph.inputs(model, part, configs)
            of_part = _head_gradient(params, inputs, mask, slopes)
            gradients = (
                jax.tree.map(jnp.add, gradients, of_part) if gradients else of_part
            )
        return *update(rate, params, state, gradients), float(loss)

    return step


@jax.jit
def _part_scores(params: Params, inputs: Any, mask: Any) -> Any:
    """The scores [C] that one segment adds."""
    graph, features = inputs
    return graph_scores(params, graph, features, mask)


@jax.jit
def _head_gradient(params: Params, inputs: Any, mask: Any, slopes: Any) -> Any:
    """One segment's part of the gradient by the parameters of the last layers.

    slopes: gradient of the loss by the scores.
    """
    graph, features = inputs
    vectors = node_vectors(params, graph, features, mask)

    def weighted(head: Params) -> Any:
        scores = head_scores({**params, "head": head}, graph, *vectors)
        return (scores.sum(axis=0) * slopes).sum()

    return jax.grad(weighted)(params["head"])


def sample_configs(
    graph: SegmentedGraph, count: int, random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Random indices of configurations [count], and a mask that is 0 for padding."""
    num_configs = graph.measured.num_configs
    chosen = random.permutation(num_configs)[:count]
    mask = (np.arange(count) < len(chosen)).astype(np.float32)
    return np.pad(chosen, (0, count - len(chosen))), mask


def stack(inputs: list[Any]) -> Any:
    """The inputs of several segments of one size, stacked along a new first dim."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *inputs)


def descend(params: Any, updates: Any, rate: Any) -> Any:
    """The parameters minus the updates times the learning rate."""
    return jax.tree.map(lambda old, update: old - rate * update, params, updates)
