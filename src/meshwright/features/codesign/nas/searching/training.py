"""Short training of a classifier, and its accuracy on data that it has not seen.

Letters in shapes: B examples of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
        if labels.dtype.kind not in "iu" or labels.min() < 0:
            raise SearchError(
                f"labels are {labels.dtype} from {labels.min():g} on; wanted whole numbers "
                "from 0 on, the numbers of classes"
            )
    return made  # pyright: ignore[reportReturnType]


def trained_accuracy(
    model: BuiltModel,
    data: Data,
    *,
    steps: int,
    batch: int,
    rate: float,
    seeds: Sequence[int],
) -> tuple[float, float]:
    """Accuracy on the test data after some steps of Adam, and the last loss.

    The learning rate falls as a cosine from `rate` to 0. Both are means over trainings from
    the seeds, which are compiled once.
    """
    jit = partial(jax.jit, compiler_options=quick_compilation())
    _check_classes(model, data)
    init = jit(model.init)
    step = jit(partial(_step, model, steps=steps, rate=rate))
    apply = jit(lambda params, state, x: model.apply(params, state, x, None)[0])
    accuracies, losses = list[float](), list[float]()
    for seed in seeds:
        rng, key = np.random.default_rng(seed), jax.random.key(seed)
        carry = *(first := init(key, data[0][:1])), adam_start(first[0])
        keys, last = jax.random.split(key, steps), list[Any]()
        # Not a loop in XLA, whose CPU backend runs convolutions in loops slowly.
        for number, at in enumerate(rng.integers(len(data[0]), size=(steps, batch))):
            carry, loss = step(carry, number, keys[number], data[0][at], data[1][at])
            last.append(loss)
        losses.append(float(np.mean(last[-10:])))
        if not np.isfinite(losses[-1]):
            raise FloatingPointError(f"the loss is {losses[-1]} after {steps} steps")
        accuracies.append(accuracy_of(partial(apply, *carry[:2]), data))
    return float(np.mean(accuracies)), float(np.mean(losses))


def _check_classes(model: BuiltModel, data: Data) -> None:
    """Fail for labels that are no class of the model's outputs."""
    x, largest = data[0][:1], max(int(data[1].max()), int(data[3].max()))
    state = jax.eval_shape(model.init, jax.random.key(0), x)
    outputs, _ = jax.eval_shape(lambda p, s: model.apply(p, s, x, None), *state)
    shape = np.shape(outputs)
    if len(shape) != data[1].ndim + 1 or shape[-1] <= largest:
        raise SearchError(
            f"one input gives outputs of shape {shape}, and its labels have "
            f"{tuple(data[1][:1].shape)} with numbers up to {largest}; wanted one dim "
            "more, with a score for each class"
        )


def quick_compilation() -> dict[str, Any]:
    """Options of XLA's CPU backend that suit small models, which compile in seconds.

    They halve the seconds of compilation. Steps take 1.6 times as long, and 3.4 times with
    depthwise convolutions, so they pay up to about 200 steps.
    """
    return (
        {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else {}
    )


def _step(  # noqa: PLR0913  a model, its state, a batch, and the numbers of a training
    model: BuiltModel,
    carry: Any,
    number: Any,
    key: Any,
    x: Any,
    y: Any,
    *,
    steps: int,
    rate: float,
) -> tuple[Any, Any]:
    """Parameters, other state and moments after a step of Adam, and the loss."""
    params, state, moments = carry

    def loss_of(params: Any) -> tuple[Any, Any]:
        logits, after = model.apply(params, state, x, key)
        chances = jax.nn.log_softmax(logits.astype(jnp.float32))
        return -jnp.take_along_axis(chances, y[..., None], axis=-1).mean(), after

    (loss, state), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
    now = rate * 0.5 * (1 + jnp.cos(jnp.pi * number / steps))
    params, moments = adam_step(params, moments, grads, now)
    return (params, state, moments), loss


_TEST_BATCH = 256
"""Examples of a batch of the test."""


def accuracy_of(apply: Callable[[Any], Any], data: Data) -> float:
    """The share of labels of the test data that outputs of `apply` are highest for."""
    right, total = 0, 0
    for begin in range(0, len(data[2]), _TEST_BATCH):
        part = slice(begin, begin + _TEST_BATCH)
        guesses = np.asarray(apply(jnp.asarray(data[2][part]))).argmax(-1)
        right += int((guesses == data[3][part]).sum())
        total += data[3][part].size
    return right / total
