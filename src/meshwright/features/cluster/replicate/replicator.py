"""`Replicator`: a step written for one replica, which many run, synchronously or not."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp

from meshwright.app.partition import partition
from meshwright.errors import ReplicaError
from meshwright.features.cluster.client import Cluster, Slice
from meshwright.features.cluster.replicate.asynchronous import AsynchronousRun
from meshwright.features.cluster.replicate.exchange import AXIS, Exchange, lockstep_mean
from meshwright.features.cluster.replicate.executors import (
    num_devices_for,
    on_device,
    on_slice,
    replica_devices,
)
from meshwright.features.cluster.replicate.inputs import InputFn, open_inputs, split
from meshwright.features.cluster.replicate.lockstep import (
    StepFn,
    map_replicas,
    run_lockstep,
)
from meshwright.features.cluster.replicate.replica_threads import Crew, Learner
from meshwright.features.cluster.replicate.server import Update
from meshwright.partitioner.tactics import shard


class Regime(Enum):
    """The way in which replicas of a step keep one common state."""

    SYNCHRONOUS = "synchronous"  # all replicas meet at collectives
    ASYNCHRONOUS = "asynchronous"  # each at its own pace, by a parameter server


class Replicator:
    """Replicas of one step: on one device, on several of this process, or on a cluster.

    replicas: number of replicas.
    on: a cluster, or the number of this process's devices to use; by default the largest
        number that divides `replicas`.
    regime: "synchronous" or "asynchronous".
    staleness: in the asynchronous regime, the most updates that the state may have had
        since a gradient was computed from it. With 0, an update takes the mean of one
        gradient of each replica, as in the synchronous regime; with more, each gradient is
        an update.

    The step of a replica calls `mean`, `sum` and the like, or the update of an optimizer
    from `wrap_optimizer`, which averages the gradients.
    """

    def __init__(
        self,
        replicas: int,
        on: Cluster | int | None = None,
        *,
        regime: str | Regime = Regime.SYNCHRONOUS,
        staleness: int = 0,
    ) -> None:
        if type(replicas) is not int or replicas < 1:
            raise ReplicaError(
                f"{replicas!r} replicas; wanted a whole number from 1 on"
            )
        self.replicas = replicas
        self.regime = _as_regime(regime)
        self.staleness = _as_staleness(staleness, self.regime)
        self.on = num_devices_for(replicas) if on is None else on
        if isinstance(self.on, int) and (self.on < 1 or replicas % self.on):
            raise ReplicaError(
                f"{self.on} devices do not divide {replicas} replicas; wanted a divisor"
            )
        self._exchange: Exchange | None = None

    # -- of the step of one replica -----------------------------------------------------

    @property
    def axis(self) -> str | None:
        """The axis name over replicas, for `jax.lax` and layers such as batch norm.

        `None` in the asynchronous regime, in which there are no collectives.
        """
        return AXIS if self.regime is Regime.SYNCHRONOUS else None

    def wrap_optimizer(self, optimizer: Any) -> Any:
        """The optax optimizer, changed to average gradients over replicas first."""

        def update(gradients: Any, state: Any, *args: Any, **more: Any) -> Any:
            gradients = self._exchanging("wrap_optimizer")(gradients, True)
            return optimizer.update(gradients, state, *args, **more)

        return optimizer._replace(update=update)

    def mean(self, tree: Any) -> Any:
        """The mean of a pytree over replicas, equal on all of them.

        In the asynchronous regime a replica gets its own value back; the parameter server
        takes the mean.
        """
        return self._exchanging("mean")(tree, False)

    def sum(self, tree: Any) -> Any:
        """The sum of a pytree over replicas, equal on all of them."""
        self._require_lockstep("sum")
        return jax.lax.psum(tree, AXIS)

    def gather(self, tree: Any) -> Any:
        """The values of all replicas, stacked along a new dim 0, on every replica."""
        self._require_lockstep("gather")
        return jax.lax.all_gather(tree, AXIS)

    def broadcast(self, tree: Any, root: int = 0) -> Any:
        """The pytree of replica number `root`, on all replicas."""
        self._require_lockstep("broadcast")
        if not 0 <= root < self.replicas:
            raise ReplicaError(f"replica {root} of {self.replicas}; they count from 0")
        is_root = jax.lax.axis_index(AXIS) == root
        return self.sum(
            jax.tree.map(lambda x: jnp.where(is_root, x, jnp.zeros_like(x)), tree)
        )

    def map_gather(self, fn: Callable[[Any], Any], items: Any) -> Any:
        """The results of `fn` for each of M items, stacked along dim 0, on every replica.

        items: arrays [M, ...], equal on all replicas. Each replica computes a share of the
            items.
        """
        results = self._map_share("map_gather", fn, items)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), self.gather(results))

    def map_reduce(self, fn: Callable[[Any], Any], items: Any) -> Any:
        """The sum over M items of the results of `fn`, on every replica.

        items: arrays [M, ...], equal on all replicas. Each replica computes a share of the
            items.
        """
        results = self._map_share("map_reduce", fn, items)
        return self.sum(jax.tree.map(lambda x: jnp.sum(x, axis=0), results))

    def _map_share(self, name: str, fn: Callable[[Any], Any], items: Any) -> Any:
        """The results of `fn` for this replica's share of the items."""
        self._require_lockstep(name)
        index = jax.lax.axis_index(AXIS)
        parts = split(items, self.replicas)
        return jax.vmap(fn)(jax.tree.map(lambda x: x[index], parts))

    def _exchanging(self, name: str) -> Exchange:
        if self._exchange is None:
            raise ReplicaError(
                f"{name} is called outside of a step; call it in the step_fn that this "
                "replicator runs"
            )
        return self._exchange

    def _require_lockstep(self, name: str) -> None:
        self._exchanging(name)
        if self.regime is not Regime.SYNCHRONOUS:
            raise ReplicaError(
                f"{name} needs all replicas at once, which asynchronous ones are not; use "
                "mean, or the synchronous regime"
            )

    @contextmanager
    def _during(self, exchange: Exchange) -> Generator[None]:
        before, self._exchange = self._exchange, exchange
        try:
            yield
        finally:
            self._exchange = before

    def _bind(self, step_fn: StepFn, exchange: Exchange) -> StepFn:
        """The step function with this `Exchange` in use while the step is traced."""

        def step(state: Any, batch: Any) -> tuple[Any, Any]:
            with self._during(exchange):
                return step_fn(state, batch)

        step.__name__ = getattr(step_fn, "__name__", "step")
        return step

    # -- of all replicas ----------------------------------------------------------------

    def split(self, batch: Any) -> Any:
        """Reshape a global batch [B, ...] to [replicas, B / replicas, ...].

        Raises `ReplicaError` if the number of replicas does not divide B.
        """
        return split(batch, self.replicas)

    def step(self, step_fn: StepFn) -> Any:
        """The step of all replicas as one partitioned function, with `plan` and `check`.

        It takes the state and the batches of all replicas, as `split` makes them. It
        returns the new state, and the results of all replicas with a new dim 0.
        """
        if self.regime is not Regime.SYNCHRONOUS:
            raise ReplicaError(
                "asynchronous replicas have no common step; use run, or the synchronous "
                "regime"
            )
        mapped = map_replicas(self._bind(step_fn, lockstep_mean))
        return partition(mapped, self._mesh, [shard({"batches.**": 0}, axis=AXIS)])

    @cached_property
    def _mesh(self) -> Any:
        """The mesh or cluster slice on which synchronous replicas run."""
        if isinstance(self.on, Cluster):
            return self.on.slice({AXIS: self.replicas})
        return {AXIS: self.on}

    def run(
        self,
        step_fn: StepFn,
        input_fn: InputFn,
        state: Any,
        *,
        steps: int,
        actors: Sequence[Callable[[Learner], None]] = (),
    ) -> Iterator[Update]:
        """The updates of the state, one after another, at most `steps`.

        step_fn: one replica's step, from (state, batch) to (new state, results).
        input_fn: a function from a `Context` to an iterator over the batches of one
            replica.
        actors: functions that run in threads during the run. Each gets a `Learner`, whose
            iterator of states ends with the run. An error of an actor is raised here.
        """
        crew = Crew(state)
        slices: list[Slice] = []
        try:
            inputs = open_inputs(input_fn, self.replicas, lambda: crew.is_stopped)
            for i, actor in enumerate(actors):
                crew.start(f"actor {i}", partial(actor, Learner(crew)))
            if self.regime is Regime.SYNCHRONOUS:
                yield from run_lockstep(self.step(step_fn), inputs, crew, steps)
                return
            if isinstance(self.on, Cluster):
                slices += [self.on.slice({AXIS: 1}) for _ in range(self.replicas)]
                executors = [partial(on_slice, each) for each in slices]
            else:
                devices = replica_devices(self.replicas, self.on)
                executors = [partial(on_device, each) for each in devices]
            bind = partial(self._bind, step_fn)
            run = AsynchronousRun(bind, executors, crew, self.staleness)
            yield from run.updates(inputs, steps)
        finally:
            crew.stop()
            for each in slices:
                each.release()


def _as_regime(regime: str | Regime) -> Regime:
    try:
        return Regime(regime)
    except ValueError:
        allowed = " or ".join(repr(each.value) for each in Regime)
        raise ReplicaError(f"regime is {regime!r}; wanted {allowed}") from None


def _as_staleness(staleness: int, regime: Regime) -> int:
    if type(staleness) is not int or staleness < 0:
        raise ReplicaError(
            f"staleness is {staleness!r}; wanted a number of updates from 0 on"
        )
    if staleness and regime is Regime.SYNCHRONOUS:
        raise ReplicaError(
            f"staleness is {staleness} in the synchronous regime, where nothing is stale; "
            'wanted 0, or regime="asynchronous"'
        )
    return staleness
