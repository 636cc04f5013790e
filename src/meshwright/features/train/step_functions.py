"""The functions of a training run: initial state, train step and evaluation.

They are ordinary JAX functions for one device, which a runner partitions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from meshwright.features.train.recipes.model import TrainModel
from meshwright.features.train.recipes.optimizer import import_optax


class TrainState(NamedTuple):
    """The training state; tactics name its parts `state.params` and `state.optimizer`.

    step: number of steps done, int32.
    """

    step: Any
    params: Any
    optimizer: Any


@dataclass(frozen=True, slots=True, eq=False)
class StepFunctions:
    """The functions of a training run, for one device.

    init: from a PRNG key to the first state.
    train_step: from (state, batch) to (new state, metrics).
    evaluate: from (state, batch) to {"loss": the mean loss}.
    """

    init: Callable[..., Any]
    train_step: Callable[..., Any]
    evaluate: Callable[..., Any]


def make_functions(
    model: TrainModel, optimizer: Any, schedule: Callable[..., Any], seed: int
) -> StepFunctions:
    """The functions that train a model with an optimizer.

    schedule: the learning rate as a function of the step, used for the metrics only.
    seed: seed of the PRNG key that the loss gets if it takes one.
    """
    optax = import_optax()

    def init(key: Any) -> TrainState:
        params = model.init(key)
        return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))

    def loss_of(params: Any, batch: Any, step: Any) -> Any:
        if not model.takes_key:
            return model.loss(params, batch)
        return model.loss(params, batch, jax.random.fold_in(jax.random.key(seed), step))

    def train_step(state: TrainState, batch: Any) -> tuple[TrainState, dict[str, Any]]:
        loss, gradients = jax.value_and_grad(loss_of)(state.params, batch, state.step)
        updates, rest = optimizer.update(gradients, state.optimizer, state.params)
        metrics = {
            "loss": loss,
            "gradient_norm": optax.tree.norm(gradients),
            "learning_rate": jnp.asarray(schedule(state.step), jnp.float32),
        }
        params = optax.apply_updates(state.params, updates)
        return TrainState(state.step + 1, params, rest), metrics

    def evaluate(state: TrainState, batch: Any) -> dict[str, Any]:
        return {"loss": loss_of(state.params, batch, jnp.zeros((), jnp.int32))}

    return StepFunctions(init, train_step, evaluate)
