"""The two programs of an asynchronous step: a replica's gradients, and the update.

A step is traced twice. The first trace records the values that the step averages, and gives
the program of a replica. In the second trace the averages are arguments, which gives the
program of the server. The second program also computes gradients that it does not use; XLA
removes them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from jax.core import Tracer
from jax.extend.core import jaxpr_as_fun

from meshwright.errors import ReplicaError
from meshwright.features.cluster.replicate.exchange import Exchange, Recorder
from meshwright.features.cluster.replicate.lockstep import (
    StepFn,
    require_state,
    show_differing,
)
from meshwright.features.cluster.replicate.unmapped_values import require_equal


@dataclass(frozen=True, slots=True, eq=False)
class Programs:
    """The program of a replica and the program of the parameter server.

    contribute: from (state, batch) to (values to average, results).
    apply: from a state and the values of one or more replicas to the next state.
    """

    contribute: Callable[[Any, Any], tuple[Any, Any]]
    apply: Callable[[Any, list[Any]], Any]


def trace_programs(
    step: Callable[[Exchange], StepFn], state: Any, batch: Any
) -> Programs:
    """Trace a step into the programs of a replica and of the server.

    Raises `ReplicaError` if the state would differ between replicas, if an averaged value
    depends on an earlier average, or if no gradient reaches an optimizer.
    """
    recorder = Recorder()

    def contribute(state: Any, batch: Any) -> tuple[Any, Any]:
        _, results = require_state(step(recorder.mean)(state, batch), state)
        return recorder.values, results

    def update(state: Any, batch: Any, means: list[Any]) -> tuple[Any, Any]:
        averaged = Recorder(means)
        new, _ = step(averaged.mean)(state, batch)
        return new, averaged.values

    contribution, (values, _) = _trace(contribute, state, batch)
    if not recorder.num_gradients:
        raise ReplicaError(
            "step_fn never calls the update of an optimizer from "
            "replicator.wrap_optimizer, so that the parameter server gets no gradients; "
            "wrap the optimizer, and call it in step_fn itself"
        )
    updated, _ = _trace(update, state, batch, values)
    _require_independent(updated, state, batch, values)

    @jax.jit
    def apply(state: Any, batch: Any, many: list[Any]) -> Any:
        return updated(state, batch, jax.tree.map(_mean, *many))[0]

    return Programs(contribution, lambda state, many: apply(state, batch, many))


def _mean(first: Any, *others: Any) -> Any:
    total = sum(others, start=first)
    return jax.numpy.asarray(total / (1 + len(others)), first.dtype)


def _trace(fn: Callable[..., Any], *args: Any) -> tuple[Callable[..., Any], Any]:
    """The traced function, which is never traced again, and the types of its results."""
    closed, types = jax.make_jaxpr(fn, return_shape=True)(*args)
    if any(isinstance(const, Tracer) for const in closed.consts):
        raise ReplicaError(
            "step_fn averages a value inside jax.jit, jax.grad, a loop or another "
            "transformation; in the asynchronous regime call replicator.mean, and the "
            "update of a wrapped optimizer, in step_fn itself"
        )
    tree, run = jax.tree_util.tree_structure(types), jaxpr_as_fun(closed)

    def traced(*args: Any) -> Any:
        return jax.tree_util.tree_unflatten(tree, run(*jax.tree_util.tree_leaves(args)))

    return traced, types


def _require_independent(
    updated: Callable[..., Any], state: Any, batch: Any, values: Any
) -> None:
    """Raise `ReplicaError` if an update depends on a replica's data without an average."""

    def of_batch(*args: Any) -> Any:
        return require_equal(updated(*args)[0], "state", show_differing)

    def of_means(*args: Any) -> Any:
        return require_equal(updated(*args)[1], "averaged", _show_chained)

    jax.eval_shape(jax.vmap(of_batch, (None, 0, None)), state, _one(batch), values)
    jax.eval_shape(jax.vmap(of_means, (None, None, 0)), state, batch, _one(values))


def _one(tree: Any) -> Any:
    """The types of a pytree's leaves with a new dim 0 of size 1."""

    def widen(leaf: Any) -> Any:
        aval: Any = jax.api_util.shaped_abstractify(leaf)
        return jax.ShapeDtypeStruct((1, *aval.shape), aval.dtype)

    return jax.tree.map(widen, tree)


def _show_chained(names: str) -> str:
    return (
        f"what step_fn averages depends on an earlier mean of the same step ({names}, by "
        "the number of the call); the asynchronous regime takes steps whose gradients "
        "all come from one state: use one update a step, or the synchronous regime"
    )
