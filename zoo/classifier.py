"""How a net that sorts images into classes is trained, and its targets.

For nets whose weights are all they keep. Letters: B batch, S height and width, K classes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array

from zoo.images import Batch, made_batches
from zoo.layers import cross_entropy
from zoo.training import State, new_state, run, train_step_of
from zoo.workload import Curve


@dataclass(frozen=True, slots=True)
class Classifier:
    """A net from images [B, S, S, 3] to scores [B, K], its optimizer and its sizes."""

    net: nn.Module
    optimizer: optax.GradientTransformation
    batch: int
    size: int
    classes: int


def loss(task: Classifier, params: dict, batch: Batch) -> Array:
    """Mean cross-entropy, in nats an image."""
    return cross_entropy(scores(task, params, batch["image"]), batch["label"])


def scores(task: Classifier, params: dict, image: Array) -> Array:
    """Scores [B, K] of images [B, S, S, 3]."""
    return task.net.apply({"params": params}, image)


def start(task: Classifier, key: Array) -> State:
    """Parameters drawn from `key`, and the optimizer at rest."""
    params = task.net.init(key, jnp.zeros((1, task.size, task.size, 3)))["params"]
    return new_state(params, task.optimizer)


def train(task: Classifier, seed: int, steps: int) -> Curve:
    """The loss of each step on made images."""
    step, (state, _) = array_target(task, seed)
    yield from run(step, state, _batches(task, seed), steps)


def array_target(task: Classifier, seed: int) -> tuple[Any, tuple[Any, ...]]:
    """The train step, a state and a batch of made images."""
    state = jax.jit(partial(start, task))(jax.random.key(seed))
    step = train_step_of(partial(loss, task), task.optimizer)
    return step, (state, next(_batches(task, seed)))


def forward_target(task: Classifier, seed: int) -> tuple[Any, tuple[Any, ...]]:
    """The scores of one made image, by parameters as arrays."""
    _, (state, batch) = array_target(task, seed)
    return partial(scores, task), (state.params, batch["image"][:1])


def shape_target(task: Classifier) -> tuple[Any, tuple[Any, ...]]:
    """The train step and its arguments as shapes."""
    state = jax.eval_shape(partial(start, task), jax.random.key(0))
    step = train_step_of(partial(loss, task), task.optimizer)
    return step, (state, batch_shapes(task.batch, task.size))


def batch_shapes(batch: int, size: int) -> dict[str, jax.ShapeDtypeStruct]:
    """A batch of `zoo.images` as shapes."""
    return {
        "image": jax.ShapeDtypeStruct((batch, size, size, 3), jnp.float32),
        "label": jax.ShapeDtypeStruct((batch,), jnp.int32),
    }


def _batches(task: Classifier, seed: int) -> Iterator[Batch]:
    return made_batches(task.batch, task.size, task.classes, seed)
