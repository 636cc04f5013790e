"""The runner for a cluster, whose workers may be lost and replaced during training."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any

import jax

from meshwright.errors import CheckpointError, ClusterError, MeshwrightWarning
from meshwright.features.checkpoint import Checkpoints, Restored
from meshwright.features.checkpoint.tasks import (
    COMMIT,
    NEWEST,
    RESTORE,
    SAVE,
    structure_of,
)
from meshwright.features.cluster.client import Cluster, Slice
from meshwright.features.cluster.life_signs import tell
from meshwright.features.cluster.remote_array import RemoteArray
from meshwright.features.cluster.start import TOKEN, Workers, cluster
from meshwright.features.train.data.batches import Batches
from meshwright.features.train.recipes.recipe import CheckpointPart, ClusterPart
from meshwright.features.train.runners.run_step import Batch, Metrics, RunnerStep, State
from meshwright.machine import Mesh

_WRITER_S = 60.0
"""Seconds to wait for the lock of the checkpoint folder.

If a client was killed, its workers keep the lock until the controller notices, which takes
less than this.
"""


def open_cluster(part: ClusterPart) -> Cluster:
    """The cluster that a recipe's table [cluster] describes."""
    tell(f"connecting to the cluster {part.address}")  # Ray may take long to start
    workers = Workers(part.workers, part.devices, part.platform, part.resources)
    return cluster(part.address, token=os.environ.get(TOKEN, ""), workers=workers)


class ClusterRunner:
    """The runner on all devices of a cluster, whose workers write the checkpoints.

    `LocalRunner` documents the methods. This process plans, reads the batches, and holds
    handles to arrays on the workers. It must see the checkpoint folder under the same path
    as the workers.
    """

    is_first = True

    def __init__(self, on: Cluster, folder: Path, part: CheckpointPart) -> None:
        """Use a cluster; `close` shuts it down if this process started it."""
        self._cluster = on
        self._folder = folder.absolute()
        self._retention = part.retention
        self._slice: Slice | None = None
        self._attempt = self._losses = 0
        self._saved: RemoteArray | None = None
        self._last_event = 0

    def wait_for_devices(self) -> int:
        ready = self._cluster.wait_until_ready()
        self._attempt, self._losses = ready.attempt, ready.num_losses
        return ready.devices

    def place(self, mesh: Mesh) -> Slice:
        self._write_events()
        if self._slice is not None:
            with suppress(ClusterError):  # the session has ended already
                self._slice.release()
        self._slice = self._cluster.slice(dict(mesh.sizes))
        return self._slice

    def agree_to_end(self, number: int, asked: bool) -> bool:
        del number
        return asked

    def put_ahead(
        self, step: RunnerStep, batches: Batches, start: int
    ) -> Iterator[Batch]:
        del step
        return map(self._own_slice.put, batches.ahead(start))

    def trace(self, folder: Path) -> AbstractContextManager[Any]:
        del folder  # this process computes nothing
        return nullcontext()

    def values(self, rows: Sequence[Metrics]) -> list[dict[str, float]]:
        return jax.tree.map(float, self._own_slice.fetch([dict(row) for row in rows]))

    def save(
        self,
        number: int,
        state: State,
        step: RunnerStep,
        position: Any,
        metrics: Mapping[str, float],
    ) -> None:
        if self._saved is not None:
            self._saved.result()
        argument = {
            "step": number,
            "structure": structure_of(step.state_shapes),
            "plan": step.plan.to_json(),
            "position": position,
            "metrics": dict(metrics),
        }
        (self._saved,) = self._task(SAVE, argument, jax.tree.leaves(state))

    def restore(self, step: RunnerStep) -> Restored | None:
        newest = self._newest()
        if newest < 0:
            return None
        leaves, tree = jax.tree.flatten(step.state_shapes)
        specs = [leaf.spec for leaf in step.plan.inputs[: len(leaves)]]
        argument = {
            "structure": structure_of(step.state_shapes),
            "mesh": step.plan.mesh.sizes,
            "arrays": [
                [aval.shape, str(aval.dtype), spec]
                for aval, spec in zip(leaves, specs, strict=True)
            ],
        }
        *arrays, found = self._task(RESTORE, argument, (), leaves)
        number = int(found.result())
        if number != newest:
            warnings.warn(
                f"{self._folder}: step {newest} is damaged, the run goes on after {number}",
                MeshwrightWarning,
                stacklevel=2,
            )
        try:
            saved = Checkpoints(self._folder, read_only=True).saved(number)
        except CheckpointError as error:
            raise ClusterError(
                f"the workers have restored step {number}, which this process does not "
                f"see ({error}); wanted one file system for the workers and this process"
            ) from error
        return Restored(jax.tree.unflatten(tree, arrays), saved)

    def recover(self) -> bool:
        status = self._cluster.status()
        known = self._attempt, self._losses
        now = status.attempt, status.num_losses
        is_lost = now != known or not status.places
        if is_lost:
            tell(
                "the state on the workers is lost; the run waits for workers, and goes on "
                "from its last checkpoint"
            )
            self._saved = None
            self._cluster.skip_refused()
            self.wait_for_devices()
            self._write_events()
        return is_lost

    def commit(self) -> None:
        if self._saved is not None:
            self._task(COMMIT, {})[-1].result()
            self._saved = None

    def close(self) -> None:
        # What has failed by now has told why, and what is committed needs no cluster.
        with suppress(ClusterError), ExitStack() as ends:
            ends.callback(self._cluster.close)
            ends.callback(self._write_events)
            self.commit()

    # -- inside --------------------------------------------------------------------------

    @property
    def _own_slice(self) -> Slice:
        assert self._slice is not None, "partition comes first"
        return self._slice

    def _task(
        self,
        kind: str,
        argument: Mapping[str, Any],
        inputs: Sequence[RemoteArray] = (),
        out_avals: Sequence[Any] = (),
    ) -> list[RemoteArray]:
        whole = {**argument, "retention": self._retention}
        return self._own_slice.task(kind, str(self._folder), whole, inputs, out_avals)

    def _newest(self) -> int:
        """The step of the newest checkpoint, or -1 if there is none.

        It waits while the workers of a killed client still hold the checkpoint folder.
        """
        ends = time.monotonic() + _WRITER_S
        while True:
            try:
                return int(self._task(NEWEST, {})[-1].result())
            except ClusterError as error:
                if "another writer" not in str(error) or time.monotonic() > ends:
                    raise
            time.sleep(1.0)

    def _write_events(self) -> None:
        """Append new events of the cluster to `cluster.log`, next to the checkpoints."""
        known = self._last_event
        events = [each for each in self._cluster.events() if each.number > known]
        self._last_event = events[-1].number if events else known
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        with (self._folder.parent / "cluster.log").open("a", encoding="utf-8") as file:
            file.writelines(f"{event}\n" for event in events)
