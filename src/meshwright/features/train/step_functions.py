"""The functions of a training run: initial state, train step and evaluation.

They are ordinary JAX functions for one device, which a runner partitions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from meshwright.features.train.divergence import WATCHED
from meshwright.features.train.recipes.model import TrainModel
from meshwright.features.train.recipes.optimizer import import_optax
from meshwright.features.train.recipes.recipe import OnNan, RunPart


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
    model: TrainModel, optimizer: Any, schedule: Callable[..., Any], run: RunPart
) -> StepFunctions:
    """The functions that train a model with an optimizer.

    schedule: the learning rate as a function of the step, used for the metrics only.
    run: its seed is that of the PRNG key that the loss gets if it takes one.
    """
    optax = import_optax()

    def init(key: Any) -> TrainState:
        params = model.init(key)
        return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))

    def loss_of(params: Any, batch: Any, key: Any) -> Any:
        if not model.takes_key:
            return model.loss(params, batch)
        return model.loss(params, batch, key)

    def key_of(step: Any) -> Any:
        return jax.random.fold_in(jax.random.key(run.seed), step)

    def train_step(state: TrainState, batch: Any) -> tuple[TrainState, dict[str, Any]]:
        compute = accumulated(jax.value_and_grad(loss_of), run.accumulate)
        loss, gradients = compute(state.params, batch, key_of(state.step))
        updates, rest = optimizer.update(gradients, state.optimizer, state.params)
        params = optax.apply_updates(state.params, updates)
        metrics = {
            "loss": loss,
            "gradient_norm": _norm(gradients),
            "parameter_norm": _norm(params),
            "learning_rate": jnp.asarray(schedule(state.step), jnp.float32),
        }
        if run.on_nan is OnNan.SKIP:
            is_good = jnp.isfinite(sum(metrics[name] for name in WATCHED))
            params, rest = jax.tree.map(
                lambda new, old: jnp.where(is_good, new, old),
                (params, rest),
                (state.params, state.optimizer),
            )
        return TrainState(state.step + 1, params, rest), metrics

    def evaluate(state: TrainState, batch: Any) -> dict[str, Any]:
        return {"loss": loss_of(state.params, batch, key_of(0))}

    return StepFunctions(init, train_step, evaluate)


def accumulated(compute: Callable[..., Any], parts: int) -> Callable[..., Any]:
    """A function of (parameters, batch, key) that computes a batch in parts, in turn.

    compute: a function of the same arguments that returns a mean over the batch, and its
        gradients. The result is the mean over all parts, summed in float32 at least.
    Row `i` of the batch is in part `i % parts`: devices hold rows next to each other, so
    that each of them has some of every part. Each part gets a key of its own.
    """
    if parts == 1:
        return compute

    def split(leaf: Any) -> Any:
        return leaf.reshape(leaf.shape[0] // parts, parts, *leaf.shape[1:]).swapaxes(
            0, 1
        )

    def add(total: Any, found: Any) -> Any:
        return total + found.astype(total.dtype)

    def whole(params: Any, batch: Any, key: Any) -> Any:
        def body(totals: Any, part: tuple[Any, Any]) -> tuple[Any, None]:
            rows, number = part
            found = compute(params, rows, jax.random.fold_in(key, number))
            return jax.tree.map(add, totals, found), None

        types = jax.eval_shape(compute, params, batch, key)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, _wide(x.dtype)), types)
        xs = (jax.tree.map(split, batch), jnp.arange(parts))
        totals, _ = jax.lax.scan(body, zeros, xs)
        return jax.tree.map(lambda x, y: (x / parts).astype(y.dtype), totals, types)

    return whole


def _norm(tree: Any) -> Any:
    """The norm of all arrays of a tree, summed in float32 at least."""
    return import_optax().tree.norm(
        jax.tree.map(lambda x: x.astype(_wide(x.dtype)), tree)
    )


def _wide(dtype: Any) -> Any:
    return jnp.promote_types(dtype, jnp.float32)
