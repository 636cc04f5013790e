"""Synchronous replicas: the step of one replica under `jax.vmap`, partitioned."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import jax

from meshwright.errors import ReplicaError
from meshwright.features.cluster.replicate.exchange import AXIS
from meshwright.features.cluster.replicate.inputs import stack
from meshwright.features.cluster.replicate.replica_threads import Crew
from meshwright.features.cluster.replicate.server import Update
from meshwright.features.cluster.replicate.unmapped_values import require_equal

StepFn = Callable[[Any, Any], tuple[Any, Any]]
"""A replica's step: from (state, batch) to (new state, results)."""

_END: Any = object()

_POLL_S = 0.1
"""Seconds between two checks for errors of actors while the next batches are awaited."""


def map_replicas(step_fn: StepFn) -> StepFn:
    """The step of all replicas: a function of the state and of batches [replicas, ...].

    The state is one, since it must be equal on all replicas. Results get a new dim 0 over
    replicas.
    """

    def step(state: Any, batches: Any) -> tuple[Any, Any]:
        def one(state: Any, batch: Any) -> tuple[Any, Any]:
            new, results = require_state(step_fn(state, batch), state)
            return require_equal(new, "state", show_differing), results

        mapped = jax.vmap(one, (None, 0), (None, 0), axis_name=AXIS)
        return mapped(state, batches)

    step.__name__ = getattr(step_fn, "__name__", "step")
    return step


def show_differing(names: str) -> str:
    """The error message for leaves of the state that would differ between replicas."""
    return (
        f"the state that step_fn returns differs between replicas: {names}; average it "
        "with replicator.mean, or compute it by an optimizer from "
        "replicator.wrap_optimizer"
    )


def require_state(returned: Any, state: Any) -> tuple[Any, Any]:
    """The state and the results that a step returned, after checks.

    The new state must have the tree structure of the old one.
    """
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise ReplicaError(
            f"step_fn returned {type(returned).__name__}; wanted a tuple of the new state "
            "and results, which may be ()"
        )
    new, results = returned
    had, has = map(jax.tree_util.tree_structure, (state, new))
    if had != has:
        raise ReplicaError(
            f"step_fn was given a state of structure {had} and returned {has}; wanted "
            "the same structure, with (state, results) in this order"
        )
    return new, results


def run_lockstep(
    step: StepFn, inputs: list[Iterator[Any]], crew: Crew, steps: int
) -> Iterator[Update]:
    """The updates of a synchronous run; it ends when a replica has no more batches."""
    replicas, state = tuple(range(len(inputs))), crew.state
    pool = ThreadPoolExecutor(len(inputs))
    try:
        for version in range(1, steps + 1):
            drawn = [pool.submit(next, each, _END) for each in inputs]
            while wait(drawn, timeout=_POLL_S).not_done:
                crew.check()
            batches = [each.result() for each in drawn]
            if any(batch is _END for batch in batches):
                return
            state, results = step(state, stack(batches))
            crew.check()
            crew.publish(version, state)
            yield Update(version, state, results, replicas)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
