"""A gang: workers that execute the same instructions, and are lost and replaced together.

An engine starts the workers: `ray_engine` as Ray actors, `local_engine` in this process.
If a worker dies, `island.py` declares the gang lost, and replaces it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from meshwright.features.cluster.wire.messages import (
    ArrayKey,
    Completion,
    WorkerInstruction,
)


@dataclass(frozen=True, slots=True)
class GangSize:
    """The number of worker processes, and the number of devices of each.

    devices: 0 stands for all devices that a worker finds.
    """

    workers: int
    devices: int

    def __str__(self) -> str:
        return f"{self.workers} workers of {self.devices or 'all'} devices"


class Gang(Protocol):
    """A set of worker processes that are started, lost and replaced together.

    attempt: 1 for the first gang of an island, and one more after each loss. No address
        or process is used by two attempts.
    processes: for each device, in JAX's order, the number of its worker.
    platform: the devices' name in JAX, such as "cpu".
    places: host and process of each worker.
    """

    attempt: int
    processes: tuple[int, ...]
    num_workers: int
    platform: str
    places: tuple[str, ...]

    def send(self, instructions: Sequence[WorkerInstruction]) -> None:
        """Hand instructions to all workers, without waiting for them."""
        ...

    async def completions(self, worker: int, after: int) -> list[Completion]:
        """The completions of a worker after instruction `after`, within a second.

        Raises an exception if the worker is gone.
        """
        ...

    async def fetch(self, worker: int, array: ArrayKey) -> Any:
        """A worker's parts of an array (`BoxData`), or a reference to them.

        Raises `ConnectionError` if the worker is gone, and another exception if it cannot
        read the array.
        """
        ...

    async def stop(self) -> None:
        """End all workers, including those that hang."""
        ...


class GangEngine(Protocol):
    """Starts gangs of workers, for example as Ray actors."""

    async def start(self, size: GangSize, attempt: int) -> Gang:
        """Start workers; they have joined one `jax.distributed` group at the end.

        Raises `ClusterError` if they cannot be started.
        """
        ...

    def require_possible(self, size: GangSize) -> None:
        """Raise `ClusterError` for a size that this engine can never start."""
        ...
