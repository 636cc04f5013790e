"""Graph segment training: a step trains a few segments of a large graph.

The other segments enter with scores that were stored when they were last trained.
Reference: Cao et al., Learning Large Graph Property Prediction via Graph Segment Training,
NeurIPS 2023 ("GST+EFD"). Since a graph's score is a sum over nodes, one number per
segment and configuration is stored. Training on whole graphs is the case of one segment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from meshwright.errors import LearnedError
from meshwright.learn.layers import Params
from meshwright.learn.losses import LOSSES, Loss
from meshwright.learn.optimizers import descend

InputFn = Callable[[NDArray[np.int64]], tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """Options of graph segment training.

    num_nodes: nodes of a segment. trained: segments per step through which gradients
        flow. kept: share of the other segments whose stored scores are used (segment
        dropout leaves out the rest). head_epochs: epochs at the end that train only the
        last layers, on new vectors of all segments.
    """

    num_nodes: int = 1000
    trained: int = 1
    kept: float = 0.5
    head_epochs: int = 1

    def __post_init__(self) -> None:
        is_valid = self.num_nodes > 0 and self.trained > 0 and self.head_epochs >= 0
        if not (is_valid and 0 <= self.kept <= 1):
            raise LearnedError(
                f"{self}: segments and their number must be positive, kept from 0 to 1"
            )


WHOLE = SegmentOptions(num_nodes=1, trained=1, kept=0, head_epochs=0)
"""Options of a graph in one part; `num_nodes` is not read."""


@dataclass(frozen=True, slots=True, eq=False)
class SegmentedGraph:
    """A training graph in J segments, with c configurations to rank.

    targets: [c], times of the configurations. table: [c, J], a segment's score of each
        configuration when it was last trained, minus the mean over that step's
        configurations; NaN before the first time. It is updated in place.
    configs_per_step: number of configurations that a step ranks.
    input_fns: for each segment, its arrays and the features of configurations in it, from
        their indices [C].
    """

    targets: NDArray[Any]
    table: NDArray[np.float32]
    configs_per_step: int
    input_fns: Sequence[InputFn]

    def sample_configs(
        self, random: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Random indices of configurations [C], and a mask that is 0 for padding."""
        count = self.configs_per_step
        chosen = random.permutation(len(self.targets))[:count]
        mask = (np.arange(count) < len(chosen)).astype(np.float32)
        return np.pad(chosen, (0, count - len(chosen))), mask


StepFn = Callable[..., tuple[Params, Any, Any, Any]]


@cache
def make_step(score_fn: Callable[..., Any], loss: Loss, optimizer: Any) -> StepFn:
    """Compile the function that trains on a few segments of one graph.

    score_fn: the scores [C] that a segment adds, from parameters, the segment's arrays, the
        configurations' features and a mask [C].

    Its arguments are the learning rate, parameters, the optimizer's state, the stacked
    inputs of the trained segments, the sum of the stored scores [C], and a tuple of weights
    [C] of the trained segments' scores, times and mask [C]. It returns new parameters and
    state, the loss, and the trained segments' scores [C, S], minus their mean over
    configurations.
    """
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
    params: Params,
    state: Any,
    graph: SegmentedGraph,
    options: SegmentOptions,
    step: StepFn,
    random: np.random.Generator,
) -> tuple[Params, Any, float]:
    """Train one step on random segments of one graph; return parameters, state and loss.

    step: compiled by `make_step`. The score of a trained segment also stands for segments
    whose stored scores are dropped or missing: of J segments S are trained, so that its
    expected weight is kept + (1 - kept) J / S.
    """
    configs, mask = graph.sample_configs(random)
    num_parts = len(graph.input_fns)
    trained = random.permutation(num_parts)[: options.trained]
    is_kept = random.random(num_parts) < options.kept
    is_kept[trained] = False
    stored = np.where(is_kept, graph.table[configs], np.nan)
    weights = np.isnan(stored).sum(axis=1) / len(trained)
    parts = [graph.input_fns[part](configs) for part in trained]
    inputs = jax.tree.map(lambda *leaves: np.stack(leaves), *parts)
    rest = (weights.astype(np.float32), graph.targets[configs], mask)
    stale = np.nansum(stored, axis=1)
    params, state, loss, fresh = step(params, state, inputs, stale, rest)
    valid = configs[mask > 0]
    graph.table[np.ix_(valid, trained)] = np.asarray(fresh)[mask > 0]
    return params, state, float(loss)


@dataclass(frozen=True, slots=True)
class SummedNetwork:
    """A network whose scores are sums over nodes, cut before its last layers.

    vectors_fn: vectors of nodes and of configurations, from the arguments of a `score_fn`.
    head_fn: the addends of the scores [N, C], from parameters, a segment's arrays and the
        vectors. The parameters of the last layers are `params["head"]`.
    """

    vectors_fn: Callable[..., tuple[Any, ...]]
    head_fn: Callable[..., Any]


@cache
def make_head_step(
    network: SummedNetwork, loss: Loss, optimizer: Any
) -> Callable[..., tuple[Params, Any, float]]:
    """Compile the function that trains only the last layers, over all segments.

    Its arguments are the learning rate, parameters, the optimizer's state, a graph and a
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
        rate: Any, params: Params, state: Any, graph: SegmentedGraph, random: Any
    ) -> tuple[Params, Any, float]:
        configs, mask = graph.sample_configs(random)
        total = sum(
            _part_scores(network, params, input_fn(configs), mask)
            for input_fn in graph.input_fns
        )
        loss, slopes = loss_and_slopes(total, graph.targets[configs], mask)
        gradients = None
        for input_fn in graph.input_fns:
            inputs = input_fn(configs)
            of_part = _head_gradient(network, params, inputs, mask, slopes)
            gradients = (
                jax.tree.map(jnp.add, gradients, of_part) if gradients else of_part
            )
        return *update(rate, params, state, gradients), float(loss)

    return step


@partial(jax.jit, static_argnums=0)
def _part_scores(network: SummedNetwork, params: Params, inputs: Any, mask: Any) -> Any:
    """The scores [C] that one segment adds."""
    vectors = network.vectors_fn(params, *inputs, mask)
    return network.head_fn(params, inputs[0], *vectors).sum(axis=0)


@partial(jax.jit, static_argnums=0)
def _head_gradient(
    network: SummedNetwork, params: Params, inputs: Any, mask: Any, slopes: Any
) -> Any:
    """One segment's part of the gradient by the parameters of the last layers.

    slopes: gradient of the loss by the scores.
    """
    vectors = network.vectors_fn(params, *inputs, mask)

    def weighted(head: Params) -> Any:
        scores = network.head_fn({**params, "head": head}, inputs[0], *vectors)
        return (scores.sum(axis=0) * slopes).sum()

    return jax.grad(weighted)(params["head"])
