"""The train step that most programs share: gradients, one optimizer, one state."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import optax
from jax import Array

import meshwright as mw
from zoo.workload import Curve

LossFn = Callable[[Any, Any], Array]
"""(params, batch) -> the mean loss, a scalar."""

TrainStep = Callable[["State", Any], tuple["State", Array]]


class State(NamedTuple):
    """The state of a train step.

    stats: state of a model other than parameters, such as running means.
    """

    params: Any
    optimizer: optax.OptState
    stats: Any = ()


class Alone:
    """What a step asks of a `mw.Replicator`, for a step that runs by itself."""

    axis = None

    def wrap_optimizer(
        self, optimizer: optax.GradientTransformation
    ) -> optax.GradientTransformation:
        """The optimizer itself."""
        return optimizer

    def mean(self, tree: Any) -> Any:
        """The pytree itself."""
        return tree


ALONE = Alone()
Replicas = Alone | mw.Replicator


def new_state(params: object, optimizer: optax.GradientTransformation) -> State:
    """The state before the first step."""
    return State(params, optimizer.init(params))


def train_step_of(
    loss_fn: LossFn, optimizer: optax.GradientTransformation
) -> TrainStep:
    """`step(state, batch)`: the state after one update, and the loss before it."""

    def train_step(state: State, batch: object) -> tuple[State, Array]:
        loss, gradients = jax.value_and_grad(loss_fn)(state.params, batch)
        updates, rest = optimizer.update(gradients, state.optimizer, state.params)
        params = optax.apply_updates(state.params, updates)
        return State(params, rest, state.stats), loss

    return train_step


def run(step: TrainStep, state: State, batches: Iterable[object], steps: int) -> Curve:
    """The loss of each of `steps` steps, compiled once."""
    compiled = jax.jit(step)
    for _, batch in zip(range(steps), batches, strict=False):
        state, loss = compiled(state, batch)
        yield {"loss": float(loss)}
