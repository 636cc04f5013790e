"""A model with its data and training, as `meshwright nas rewrite` takes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from meshwright.errors import NasError
from meshwright.features.codesign.nas.rewriting.cpu_network import cpu_network
from meshwright.features.codesign.nas.rewriting.network import (
    ModelProgram,
    capture_network,
)

Examples = tuple[Any, Any]
"""Arrays [N, ...] of inputs, and [N, ...] of what they should give."""


def cross_entropy(scores: Array, labels: Array) -> Array:
    """The mean of -log softmax(scores [B, K]) at the labels [B]."""
    chosen = jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], axis=-1)
    return -chosen.mean()


def accuracy(scores: Array, labels: Array) -> Array:
    """For each example, 1 if the class with the highest of scores [B, K] is its label."""
    return (scores.argmax(-1) == labels).astype(jnp.float32)


@dataclass(frozen=True, eq=False)
class Task:
    """A model, its data and its training.

    fn: the model as it is, fn(params, x) -> scores of a batch.
    init: the first parameters from a key of `jax.random`.
    train, validation, test: what it learns from, what the search judges by, and what it
        is judged by in the end.
    steps, batch, rate: the training, by Adam with a rate that falls to 0 as a cosine.
    loss: of scores and targets of a batch. score: how good each example is, larger is
        better.
    """

    fn: Callable[[Any, Any], Any]
    init: Callable[[Array], Any]
    train: Examples
    validation: Examples
    test: Examples
    steps: int = 200
    batch: int = 64
    rate: float = 3e-3
    loss: Callable[[Any, Any], Any] = cross_entropy
    score: Callable[[Any, Any], Any] = accuracy

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            x, y = getattr(self, name)
            for part in (x, y):
                if not hasattr(part, "shape"):
                    kind = type(part).__name__
                    raise NasError(f"{name} has a {kind}; wanted arrays [N, ...]")
            if len(x) != len(y) or not len(x):
                what = f"{name} has {len(x)} inputs and {len(y)} targets"
                raise NasError(f"{what}; wanted as many of both, at least one")
            if x.shape[1:] != self.train[0].shape[1:]:
                here, there = list(x.shape[1:]), list(self.train[0].shape[1:])
                what = f"an input of {name} has the shape {here}"
                raise NasError(f"{what}; wanted {there}, as those of train have")
        if min(self.steps, self.batch) < 1:
            what = f"steps {self.steps} and batch {self.batch}"
            raise NasError(f"{what}: wanted whole numbers of 1 or more")

    def network(self) -> ModelProgram:
        """The model as a program."""
        params = jax.eval_shape(self.init, jax.random.key(0))
        x = self.train[0]
        batch = jax.ShapeDtypeStruct((self.batch, *x.shape[1:]), x.dtype)
        scores = jax.eval_shape(self.fn, params, batch)
        if self.loss is cross_entropy:
            self._check_classes(scores)
        self._check_figures(scores)
        return capture_network(self.fn, params, batch)

    def _check_figures(self, scores: Any) -> None:
        """Fail unless the loss is a number, and the score one for each example."""
        y = self.train[1]
        targets = jax.ShapeDtypeStruct((self.batch, *y.shape[1:]), y.dtype)
        for name, wanted in (("loss", ()), ("score", (self.batch,))):
            found = jax.eval_shape(getattr(self, name), scores, targets)
            shape = getattr(found, "shape", None)
            if shape != wanted or (
                name == "loss" and not jnp.issubdtype(found.dtype, jnp.floating)
            ):
                given = "no array" if shape is None else f"{found.dtype}{list(shape)}"
                what = f"{name} gives {given} for a batch of {self.batch}"
                allowed = "one float" if name == "loss" else f"{list(wanted)}"
                raise NasError(f"{what}; wanted {allowed}")

    def _check_classes(self, scores: Any) -> None:
        """Fail for labels that are no class of the model's scores [B, K]."""
        shape = tuple(getattr(scores, "shape", ()))
        for name in ("train", "validation", "test"):
            labels = np.asarray(getattr(self, name)[1])
            is_whole = labels.ndim == 1 and labels.dtype.kind in "iu"
            most = shape[1] if len(shape) == 2 and is_whole else 0
            if not is_whole or not 0 <= labels.min() <= labels.max() < most:
                largest = f" up to {labels.max()}" if is_whole else ""
                raise NasError(
                    f"{name} has labels of {labels.dtype}{list(labels.shape)}{largest}, "
                    f"and fn gives scores {list(shape)}; wanted numbers "
                    "of classes from 0 on, and a score for each class, or another loss"
                )

    def leaves(self, seed: int) -> list[Any]:
        """The user's first parameters, as leaves."""
        return jax.tree_util.tree_leaves(self.init(jax.random.key(seed)))


@dataclass(frozen=True, slots=True)
class TrainedWeights:
    """A trained network: its weights, and its mean score on data that it has not seen.

    error: standard error of the score on validation data, from how its examples differ.
    """

    weights: list[Array]
    validation: float
    test: float
    error: float


def train(
    task: Task, network: ModelProgram, seeds: Sequence[int]
) -> Iterator[TrainedWeights]:
    """A network trained from its first values by each seed, compiled once for all.

    The same seed gives the same result. A seed is trained when its result is asked for.
    """
    network = cpu_network(network) if jax.default_backend() == "cpu" else network
    step = jax.jit(partial(_step, task, network), donate_argnums=0)
    score = jax.jit(lambda weights, x, y: task.score(network(weights, x), y))
    return (_trained(task, network, step, score, seed) for seed in seeds)


def _trained(
    task: Task, network: ModelProgram, step: Any, score: Any, seed: int
) -> TrainedWeights:
    weights = network.initial(task.leaves(seed), jax.random.key(seed + 1))
    x, y = task.train
    zeros = [jnp.zeros_like(w) for w in weights]
    state = (weights, zeros, [jnp.zeros_like(w) for w in weights])
    # Not a loop in XLA: its CPU backend runs convolutions in loops several times slower.
    for number, at in enumerate(_batches(len(x), task.batch, task.steps, seed)):
        state = step(state, np.float32(number), x[at], y[at])
    weights = state[0]
    if not all(bool(jnp.isfinite(w).all()) for w in weights):
        raise NasError(
            f"weights are not finite after {task.steps} steps of training; try a smaller "
            "rate, or look for NaN in the data"
        )
    judged = partial(_scores, task.batch, partial(score, weights))
    validation, test = judged(task.validation), judged(task.test)
    error = float(validation.std() / np.sqrt(len(validation)))
    return TrainedWeights(weights, float(validation.mean()), float(test.mean()), error)


def _batches(num: int, batch: int, steps: int, seed: int) -> np.ndarray:
    """Positions [steps, batch] of examples: one random order after another."""
    rng = np.random.default_rng(seed)
    rounds = -(-steps * batch // num)
    order = np.concatenate([rng.permutation(num) for _ in range(rounds)])
    return order[: steps * batch].reshape(steps, batch)


def _step(
    task: Task, network: ModelProgram, state: Any, number: Array, x: Any, y: Any
) -> Any:
    """One step of Adam (Kingma and Ba, 2015) on the state: weights and two moments."""
    weights, first, second = state
    gradients = jax.grad(lambda w: task.loss(network(w, x), y))(weights)
    first = [0.9 * m + 0.1 * g for m, g in zip(first, gradients, strict=True)]
    second = [0.99 * v + 0.01 * g * g for v, g in zip(second, gradients, strict=True)]
    rate = task.rate * 0.5 * (1 + jnp.cos(jnp.pi * number / task.steps))
    rate *= jnp.sqrt(1 - 0.99 ** (number + 1)) / (1 - 0.9 ** (number + 1))
    moments = zip(weights, first, second, strict=True)
    weights = [w - rate * m / (jnp.sqrt(v) + 1e-8) for w, m, v in moments]
    return weights, first, second


def _scores(
    batch: int, score: Callable[..., Array], examples: Examples
) -> NDArray[np.float32]:
    """The score of each example, in batches of the size of training.

    The last batch is filled with the first examples.
    """
    x, y = examples
    rounds = -(-len(x) // batch)
    at = np.arange(rounds * batch) % len(x)
    parts = [at[i * batch : (i + 1) * batch] for i in range(rounds)]
    scores = np.concatenate([score(x[part], y[part]) for part in parts])
    return scores[: len(x)]
