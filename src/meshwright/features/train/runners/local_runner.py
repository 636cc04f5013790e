"""The runner on the devices of this process, or of all `jax.distributed` processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from meshwright.app.partition import partition
from meshwright.app.partitioned import Partitioned
from meshwright.errors import ClusterError
from meshwright.features.checkpoint import Checkpoints
from meshwright.features.checkpoint.process_group import make_group
from meshwright.features.train.data.batches import Batches
from meshwright.features.train.recipes.partitioning import (
    decisions_for,
    sharding_tactics,
)
from meshwright.features.train.recipes.recipe import CheckpointPart, PartitionPart
from meshwright.features.train.runners.runner import Profile, RestoredRun, RunnerStep
from meshwright.partitioner.tactics import Tactic
from meshwright.run.local.devices import find_devices

_AGREE_EVERY = 10
"""Steps between two votes of all processes on ending the run; a vote takes some 20 ms."""


class LocalRunner:
    """The runner on the devices that JAX sees, which writes checkpoints itself.

    `Runner` documents the methods. Each process reads only the rows of a batch that its
    devices need. A step that has a checkpoint is not saved again.
    """

    def __init__(self, directory: Path, part: CheckpointPart) -> None:
        """Open the checkpoint directory; `CheckpointError` if it has another writer."""
        self._devices = find_devices()
        self._group = make_group()
        self._checkpoints = Checkpoints(
            directory,
            keep=part.keep,
            every=part.every or None,
            best=part.best,
            metric=part.metric,
            mode=part.mode,
        )

    @property
    def num_devices(self) -> int:
        """The number of devices of all processes."""
        return len(self._devices)

    @property
    def is_first(self) -> bool:
        """Whether this is process 0."""
        return self._group.is_first

    def agree_to_end(self, number: int, asked: bool) -> bool:
        if self._group.count > 1 and number % _AGREE_EVERY:
            return False
        return any(self._group.gather(asked))

    def partition(
        self,
        fn: Callable[..., Any],
        shapes: tuple[Any, Any],
        how: PartitionPart,
        tactics: tuple[Tactic, ...] | None,
    ) -> RunnerStep:
        decisions = decisions_for(fn, shapes, how, tactics, self.num_devices)
        mesh, chosen, gather = decisions
        step = partition(fn, mesh, chosen, gather=gather, donate_argnums=0)
        plan = step.plan(*shapes).on(how.machine, donate_state=True)
        return RunnerStep(step, plan, shapes[0])

    def partition_like(
        self, fn: Callable[..., Any], step: RunnerStep
    ) -> Callable[..., Any]:
        return partition(fn, step.plan.mesh, sharding_tactics(step.plan))

    def init(self, step: RunnerStep, init_fn: Callable[..., Any], seed: int) -> Any:
        assert isinstance(step.call, Partitioned)
        return step.call.init(init_fn, jax.random.key(seed), argnum=0)

    def put_ahead(
        self, step: RunnerStep, batches: Batches, start: int
    ) -> Iterator[Any]:
        shapes = batches.shapes()
        _, shardings = step.plan.in_shardings
        rows = _local_rows(shapes, shardings)
        for read in batches.ahead(start, rows):
            yield jax.tree.map(
                lambda values, shape, sharding: _place(values, rows, shape, sharding),
                read,
                shapes,
                shardings,
            )

    def profile(
        self, step: RunnerStep, number: int, args: tuple[Any, Any], folder: Path
    ) -> tuple[Any, Profile]:
        folder.mkdir(parents=True, exist_ok=True)
        jax.block_until_ready(args)
        with jax.profiler.trace(str(folder)):
            start = time.perf_counter()
            results = step.call(*args)
            jax.block_until_ready(results)
            seconds = time.perf_counter() - start
        if step.plan.estimate is None:
            return results, Profile(number, seconds, None, folder)
        if self.is_first:
            step.plan.trace(folder / "predicted.json")
        return results, Profile(number, seconds, step.plan.step_time_s, folder)

    def values(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
        return [
            {
                name: float(np.asarray(each.addressable_data(0)))
                for name, each in row.items()
            }
            for row in rows
        ]

    def save(
        self,
        number: int,
        state: Any,
        step: RunnerStep,
        position: Any,
        metrics: Mapping[str, float],
    ) -> None:
        if number not in self._checkpoints.steps:
            self._checkpoints.save(
                number, state, plan=step.plan, position=position, metrics=metrics
            )

    def restore(self, step: RunnerStep) -> RestoredRun | None:
        if self._checkpoints.latest is None:
            return None
        shardings, _ = step.plan.in_shardings
        found = self._checkpoints.restore(step.state_shapes, shardings)
        return RestoredRun(found.state, found.step, found.plan, found.position)

    def recover(self, error: ClusterError) -> bool:
        del error
        return False

    def close(self) -> None:
        self._checkpoints.close()


def _local_rows(shapes: Any, shardings: Any) -> list[int]:
    """The rows of a batch that the devices of this process hold.

    shapes, shardings: types and shardings of the batch's arrays.
    """
    rows: set[int] = set()
    pairs = zip(jax.tree.leaves(shapes), jax.tree.leaves(shardings), strict=True)
    for shape, sharding in pairs:
        parts = sharding.addressable_devices_indices_map(shape.shape)
        for index in parts.values():
            rows.update(range(*index[0].indices(shape.shape[0])))
    return sorted(rows)


def _place(values: Any, rows: Sequence[int], shape: Any, sharding: Any) -> jax.Array:
    """A global array on the devices, made from the rows that this process has read.

    values: the rows' content. rows: their indices in the batch.
    """

    def part(index: Any) -> Any:
        wanted = range(*index[0].indices(shape.shape[0]))
        first = int(np.searchsorted(rows, wanted.start))
        return values[first : first + len(wanted)][:, *index[1:]]

    return jax.make_array_from_callback(shape.shape, sharding, part)
