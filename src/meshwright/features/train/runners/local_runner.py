"""The runner on the devices of this process, or of all `jax.distributed` processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from meshwright.features.checkpoint import Checkpoints, Restored
from meshwright.features.checkpoint.process_group import make_group
from meshwright.features.train.data.batches import Batches
from meshwright.features.train.recipes.recipe import CheckpointPart
from meshwright.features.train.runners.run_step import Batch, Metrics, RunnerStep, State
from meshwright.machine import Mesh
from meshwright.run.local.devices import find_devices

_AGREE_EVERY = 10
"""Steps between two votes of all processes on ending the run; a vote takes some 20 ms."""


class LocalRunner:
    """The runner on the devices that JAX sees, which writes checkpoints itself.

    Each process reads only the rows of a batch that its
    devices need. A step that has a checkpoint is not saved again.
    """

    def __init__(self, directory: Path, part: CheckpointPart) -> None:
        """Open the checkpoint directory; `CheckpointError` if it has another writer."""
        self._devices = find_devices()
        self._group = make_group()
        self._checkpoints = Checkpoints(directory, **part.retention)

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that prints and writes metrics."""
        return self._group.is_first

    def wait_for_devices(self) -> int:
        """The number of devices of the run, over all processes, once they are there."""
        return len(self._devices)

    def place(self, mesh: Mesh) -> Mesh:
        """The devices in the shape of a mesh, on which functions are partitioned."""
        return mesh

    def agree_to_end(self, number: int, asked: bool) -> bool:
        """Whether the run ends after step `number`; all processes get the same answer.

        asked: whether this process was asked to end the run, for example by Ctrl-C.
        """
        if self._group.count > 1 and number % _AGREE_EVERY:
            return False
        return any(self._group.gather(asked))

    def put_ahead(
        self, step: RunnerStep, batches: Batches, start: int
    ) -> Iterator[Batch]:
        """The batches from number `start` on, placed on the devices.

        Batches are read ahead in the background.
        """
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

    def trace(self, folder: Path) -> AbstractContextManager[Any]:
        """A context that writes a profile of its body into a folder."""
        return jax.profiler.trace(str(folder))

    def values(self, rows: Sequence[Metrics]) -> list[dict[str, float]]:
        """The metrics of several steps as numbers; this waits for the steps to finish."""
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
        state: State,
        step: RunnerStep,
        position: Any,
        metrics: Mapping[str, float],
    ) -> None:
        """Save the state after `number` steps as a checkpoint, in the background."""
        if number not in self._checkpoints.steps:
            self._checkpoints.save(
                number, state, plan=step.plan, position=position, metrics=metrics
            )

    def restore(self, step: RunnerStep) -> Restored | None:
        """The last checkpoint with its state, sharded as `step` needs it.

        `None` if there is no checkpoint.
        """
        if self._checkpoints.latest is None:
            return None
        shardings, _ = step.plan.in_shardings
        return self._checkpoints.restore(step.state_shapes, shardings)

    def recover(self) -> bool:
        """Whether the run can continue from its last checkpoint after an error.

        It waits until there are devices again, which may be fewer or more than before.
        """
        return False

    def commit(self) -> None:
        """Wait until all checkpoints are complete."""
        self._checkpoints.wait()

    def close(self) -> None:
        """Wait until all checkpoints are complete, and release the resources."""
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
