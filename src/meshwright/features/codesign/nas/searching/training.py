"""Short training of a classifier, and its accuracy on data that it has not seen.

Letters in shapes: B examples of a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.errors import SearchError
from meshwright.features.codesign.nas.searching.model import BuiltModel
from meshwright.learn.optimizers import adam_start, adam_step

type Data = tuple[Any, Any, Any, Any]
"""Inputs and labels to train on, then inputs and labels to test with."""


def read_data(data: Data | Callable[[], Data]) -> Data:
    """The arrays of `data`, or of what it returns if it is a function."""
    arrays = data() if callable(data) else data
    if not isinstance(arrays, tuple | list) or len(arrays) != 4:
        wanted = (
            "(inputs, labels, test inputs, test labels), or a function that returns it"
        )
        raise SearchError(f"data is {type(arrays).__name__}; wanted {wanted}")
    made = tuple(np.asarray(each) for each in arrays)
    for inputs, labels in (made[:2], made[2:]):
        if len(inputs) != len(labels) or len(inputs) == 0:
            raise SearchError(f"data has {len(inputs)} inputs and {len(labels)} labels")
    return made  # pyright: ignore[reportReturnType]


def trained_accuracy(
    model: BuiltModel, data: Data, *, steps: int, batch: int, rate: float, seed: int
) -> tuple[float, float]:
    """Accuracy on the test data after some steps of Adam, and the last loss.

    The learning rate falls as a cosine from `rate` to 0.
    """
    inputs, labels = jnp.asarray(data[0]), jnp.asarray(data[1])
    key = jax.random.key(seed)
    params, state = jax.jit(model.init)(key, inputs[:1])
    run = partial(_run, model, steps=steps, batch=batch, rate=rate)
    params, state, loss = jax.jit(run)(key, params, state, inputs, labels)
    if not np.isfinite(loss):
        raise FloatingPointError(f"the loss is {float(loss)} after {steps} steps")
    return _accuracy(model, params, state, data), float(loss)


def _run(  # noqa: PLR0913  data, and the numbers of a training
    model: BuiltModel,
    key: Any,
    params: Any,
    state: Any,
    inputs: Any,
    labels: Any,
    *,
    steps: int,
    batch: int,
    rate: float,
) -> tuple[Any, Any, Any]:
    """Parameters, other state and mean loss of the last steps."""

    def loss_of(params: Any, state: Any, x: Any, y: Any) -> tuple[Any, Any]:
        logits, state = model.apply(params, state, x, True)
        chances = jax.nn.log_softmax(logits.astype(jnp.float32))
        return -jnp.take_along_axis(chances, y[..., None], axis=-1).mean(), state

    def step(carry: Any, index: Any) -> tuple[Any, Any]:
        params, state, moments = carry
        chosen = jax.random.randint(
            jax.random.fold_in(key, index), (batch,), 0, len(inputs)
        )
        value_fn = jax.value_and_grad(loss_of, has_aux=True)
        (loss, state), grads = value_fn(params, state, inputs[chosen], labels[chosen])
        now = rate * 0.5 * (1 + jnp.cos(jnp.pi * index / steps))
        params, moments = adam_step(params, moments, grads, now)
        return (params, state, moments), loss

    carry = params, state, adam_start(params)
    (params, state, _), losses = jax.lax.scan(step, carry, jnp.arange(steps))
    return params, state, losses[-min(steps, 10) :].mean()


_TEST_BATCH = 256
"""Examples of a batch of the test."""


def _accuracy(model: BuiltModel, params: Any, state: Any, data: Data) -> float:
    apply = jax.jit(lambda params, state, x: model.apply(params, state, x, False)[0])
    right, total = 0, 0
    for begin in range(0, len(data[2]), _TEST_BATCH):
        part = slice(begin, begin + _TEST_BATCH)
        guesses = np.asarray(apply(params, state, jnp.asarray(data[2][part]))).argmax(
            -1
        )
        right += int((guesses == data[3][part]).sum())
        total += data[3][part].size
    return right / total
