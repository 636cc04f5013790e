"""The Ray engine: workers and controller as actors, arrays in Ray's object store.

A worker is an actor with several groups of threads. One takes instructions in their order;
the others meanwhile report completions, send arrays, and receive arrays of other workers.
JAX is imported in the workers only after their environment is set. It joins a
`jax.distributed` group that belongs to one attempt to start the workers.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Sequence
from typing import Any

from meshwright.errors import ClusterError, import_extra
from meshwright.features.cluster.controller.gang import Gang, GangSize
from meshwright.features.cluster.wire.messages import (
    ArrayKey,
    Completion,
    WorkerInstruction,
)

_JOIN_S = 120
"""Seconds within which the workers of a gang must find each other."""

_READ_S = 60
"""Seconds within which a worker must read a client's array from the object store."""

WIDTH = 8
"""Number of workers to which the controller, or one worker, forwards instructions."""

_GROUPS = {"execute": 1, "completions": 1, "fetch": 8, "deliver": 4}
"""Number of threads of a worker for each of these methods.

With threads of its own (a concurrency group of Ray), a method does not wait until another
one ends.
"""


def require_ray() -> Any:
    """The module `ray`; raises `ClusterError` if it is not installed."""
    return import_extra("ray", "a cluster needs Ray", "cluster", ClusterError)


class WorkerActor:
    """One worker of a gang, as an actor of Ray."""

    def __init__(self) -> None:
        self._worker: Any = None
        self._children: list[Any] = []
        self._peers: Any = None

    def free_address(self) -> str:
        """An address of this machine, with a port that no process listens on."""
        ray = require_ray()
        host = ray.util.get_node_ip_address()
        with socket.socket() as s:
            s.bind((host, 0))
            return f"{host}:{s.getsockname()[1]}"

    def join(
        self, address: str, count: int, rank: int, platform: str
    ) -> tuple[list[int], str]:
        """Join the `jax.distributed` group at an address.

        Returns the process of each device of the group, and this process's host name
        and id.
        """
        import jax

        if platform == "cpu":
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(
            address,
            count,
            rank,
            initialization_timeout=_JOIN_S,
            coordinator_bind_address=address,
        )
        from meshwright.features.cluster.worker.worker import Worker

        self._worker = Worker(self._send, _loaded)
        processes = [device.process_index for device in jax.devices()]
        return processes, f"{socket.gethostname()}:{os.getpid()}"

    def meet(self, children: Sequence[Any], peers: Sequence[Any]) -> None:
        """Set the workers to which this worker forwards instructions and sends arrays.

        peers: a list with one element, a reference to all workers; it is resolved when
            needed.
        """
        self._children, self._peers = list(children), peers[0]

    def _send(self, receiver: int, delivery: Any) -> None:
        """Send parts of an array to another worker, through Ray's object store."""
        if not isinstance(self._peers, list):
            self._peers = require_ray().get(self._peers)
        _start(self._peers[receiver], "deliver", delivery)

    def deliver(self, delivery: Any) -> None:
        """Receive parts of an array that another worker sends."""
        self._worker.deliver(delivery)

    def execute(self, instructions: Sequence[WorkerInstruction]) -> None:
        """Forward instructions to other workers, and start them here."""
        for child in self._children:
            _start(child, "execute", instructions)
        self._worker.execute(instructions)

    def completions(self, after: int) -> list[Completion]:
        """The worker's completions after instruction `after`, within half a second."""
        return self._worker.completions(after)

    def fetch(self, array: ArrayKey) -> Any:
        """The worker's parts of an array (`BoxData`)."""
        return self._worker.fetch(array)


def _start(actor: Any, method: str, argument: Any) -> Any:
    """Start a method of a worker in the method's own threads; returns a reference."""
    return getattr(actor, method).options(concurrency_group=method).remote(argument)


def _loaded(value: Any) -> Any:
    """The array behind a reference of Ray, or the value itself if it is no reference.

    Raises `ClusterError` if the client that stored the array is gone, or has not stored
    it within 60 s.
    """
    ray = require_ray()
    if not isinstance(value, ray.ObjectRef):
        return value
    try:
        return ray.get(value, timeout=_READ_S)
    except ray.exceptions.RayError as error:
        raise ClusterError(f"an array was lost with its client: {error}") from error


class RayGang:
    """A gang of Ray actors that have joined one `jax.distributed` group."""

    def __init__(
        self, attempt: int, actors: Sequence[Any], answers: Sequence[Any], platform: str
    ) -> None:
        self.attempt = attempt
        self.platform = platform
        self.processes: tuple[int, ...] = tuple(answers[0][0])
        self.places = tuple(place for _, place in answers)
        self.num_workers = len(actors)
        self._actors = list(actors)

    def send(self, instructions: Sequence[WorkerInstruction]) -> None:
        """Send instructions to the first workers, which forward them to the others."""
        for actor in self._actors[:WIDTH]:
            _start(actor, "execute", list(instructions))

    async def completions(self, worker: int, after: int) -> list[Completion]:
        """A worker's completions after instruction `after`."""
        return await _start(self._actors[worker], "completions", after)

    async def fetch(self, worker: int, array: ArrayKey) -> Any:
        """A reference to a worker's parts of an array, which the client resolves."""
        reference = _start(self._actors[worker], "fetch", array)
        try:
            await reference  # so that an error is raised here
        except require_ray().exceptions.RayActorError as error:
            raise ConnectionError(f"worker {worker} is gone") from error
        return [reference]  # in a list, so that Ray passes the reference on

    async def stop(self) -> None:
        """End all workers, including those that hang."""
        _kill(self._actors)


def _kill(actors: Sequence[Any]) -> None:
    """End Ray actors; actors that have ended already are skipped."""
    ray = require_ray()
    for actor in actors:
        with contextlib.suppress(Exception):
            ray.kill(actor)


class RayEngine:
    """Starts gangs of workers as Ray actors.

    platform: "cpu", "cuda" or "tpu".
    resources: Ray options that reserve the resources of each worker.
    """

    def __init__(self, platform: str, resources: dict[str, Any]) -> None:
        self.platform = platform
        self.resources = resources

    async def start(self, size: GangSize, attempt: int) -> Gang:
        """Start workers; they have joined one `jax.distributed` group at the end.

        Raises `ClusterError` if they cannot be started.
        """
        actors: list[Any] = []
        with contextlib.ExitStack() as undo:
            undo.callback(_kill, actors)
            try:
                answers = await self._join(actors, size)
            except Exception as error:
                reason = self._reason(error)
                raise ClusterError(f"{size} did not start: {reason}") from error
            undo.pop_all()
        return RayGang(attempt, actors, answers, self.platform)

    def require_possible(self, size: GangSize) -> None:
        """Refuse nothing: machines that are missing may join Ray later."""

    async def _join(self, actors: list[Any], size: GangSize) -> list[Any]:
        """Start workers, add them to `actors`, and return their answers to `join`."""
        ray = require_ray()
        actor = ray.remote(
            runtime_env={"env_vars": self._environment(size)},
            concurrency_groups=_GROUPS,
            max_restarts=0,
            **self.resources,
        )(WorkerActor)
        actors += [actor.remote() for _ in range(size.workers)]
        address = await asyncio.wait_for(actors[0].free_address.remote(), _JOIN_S)
        joins = [
            each.join.remote(address, size.workers, rank, self.platform)
            for rank, each in enumerate(actors)
        ]
        answers = await asyncio.wait_for(asyncio.gather(*joins), 2 * _JOIN_S)
        await asyncio.gather(*_meetings(ray, actors))
        return list(answers)

    def _environment(self, size: GangSize) -> dict[str, str]:
        """Environment variables of the workers: platform and number of CPU devices."""
        found = {"JAX_PLATFORMS": self.platform}
        if self.platform == "cpu":
            count = max(1, size.devices)
            found["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={count}"
        return found

    def _reason(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return (
                f"no answer in time; the Ray cluster may lack {self.resources} for each "
                "worker, which `ray status` shows"
            )
        return f"{type(error).__name__}: {error}"


def _meetings(ray: Any, actors: Sequence[Any]) -> list[Any]:
    """Start a call of `meet` for each worker; returns references to wait for.

    Each worker learns all workers, and up to `WIDTH` workers to forward instructions
    to.
    """
    peers = [ray.put(list(actors))]
    children = [actors[WIDTH * (i + 1) : WIDTH * (i + 2)] for i in range(len(actors))]
    pairs = zip(actors, children, strict=True)
    return [actor.meet.remote(below, peers) for actor, below in pairs]
