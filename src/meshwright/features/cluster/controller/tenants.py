"""Tenants, their sessions, and the arrays and slices that a session has on a cluster."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os.path import normpath
from pathlib import PurePosixPath

from meshwright.errors import ClusterError
from meshwright.features.cluster.controller.gang import GangSize
from meshwright.features.cluster.controller.limits import MOST_EARLY, MOST_REASONS
from meshwright.features.cluster.wire.messages import Define

_ARRIVAL_S = 120
"""Seconds that a submission waits for an earlier one that has not arrived.

They are those between two signs of life of the client, since a client that stands still
cannot send anything.
"""

_LOOK_S = 1.0
"""Seconds between two looks at whether a client still gives signs of life."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A user of the cluster, and their share of it.

    token: secret that a client must present.
    weight: share of the time, relative to other tenants.
    queue: number of requests that may wait; a client that submits more is blocked.
    max_bytes: bytes that the tenant's arrays may take on one device.
    max_devices: number of devices of all slices of the tenant together.
    folder: folder on the workers that contains all of the tenant's checkpoints.
    is_operator: whether the tenant may resize and stop the cluster, which loses the
        arrays of all tenants.
    """

    name: str
    token: str
    weight: float = 1.0
    queue: int = 1024
    max_bytes: float = float("inf")
    max_devices: float = float("inf")
    folder: str = "/"
    is_operator: bool = False

    def may_write(self, path: str) -> bool:
        """Whether a path lies below the tenant's folder, also if it contains ".."."""
        is_whole = path.startswith("/") and "\0" not in path
        own = PurePosixPath(normpath(self.folder))
        return is_whole and PurePosixPath(normpath(path)).is_relative_to(own)


@dataclass(frozen=True, slots=True)
class ArrayRecord:
    """The controller's record of an array.

    made: a future, done when all workers have completed the request that makes the
        array; its exception says why they never will.
    num_bytes: bytes on one device.
    devices: devices of its slice, by the slice's first positions. `None` if any worker may
        hold parts, as of an array that the client has sent.
    is_whole: whether each of the devices holds the complete array.
    """

    made: asyncio.Future[None]
    num_bytes: int
    devices: tuple[int, ...] | None
    is_whole: bool = False


@dataclass(slots=True)
class Session:
    """One client of a tenant.

    slices: the first positions of each slice's devices, by slice number. Clients always
        name a slice by these.
    moved: present positions of each slice that has moved since the number of workers
        changed, by its first positions; `None` if the slice is larger than the cluster.
    gone: reasons why arrays that the client may still name no longer exist, by number.
    num_taken: number of submissions processed in their order; later ones may arrive early.
    is_held: whether the next submission has arrived and waits for room in the queue.
    is_awake: set while the client gives signs of life. A session whose client is silent
        has no arrays and no devices, and its submissions wait.
    is_ended: whether the session has ended, so that nothing may wait for it.
    num_losses: number of times that the session has lost its arrays.
    """

    name: str
    tenant: Tenant
    seen_s: float
    slices: dict[int, tuple[int, ...]] = field(default_factory=dict)
    programs: dict[int, Define] = field(default_factory=dict)
    arrays: dict[int, ArrayRecord] = field(default_factory=dict)
    gone: dict[int, str] = field(default_factory=dict)
    moved: dict[tuple[int, ...], tuple[int, ...] | None] = field(default_factory=dict)
    num_taken: int = 0
    is_held: bool = False
    one_taken: asyncio.Condition = field(default_factory=asyncio.Condition)
    is_awake: asyncio.Event = field(default_factory=asyncio.Event)
    is_ended: bool = False
    num_losses: int = 0

    def present(self, devices: tuple[int, ...]) -> tuple[int, ...] | None:
        """The present positions of a slice, given its first ones; `None` if it has none."""
        return self.moved.get(devices, devices)

    def note_gone(self, arrays: Iterable[int], why: str) -> None:
        """Remember why arrays no longer exist; if very many, only for the latest."""
        self.gone |= dict.fromkeys(arrays, why)
        if len(self.gone) > MOST_REASONS:
            self.gone = dict(list(self.gone.items())[-MOST_REASONS // 2 :])

    def lose_arrays(self, why: str) -> None:
        """Forget all arrays, and remember why they no longer exist."""
        self.note_gone(self.arrays, f"{why}; put the state again, or restore it")
        self.arrays.clear()
        self.num_losses += 1

    async def take(self) -> None:
        """Record that the next submission has been processed; waiting calls go on."""
        self.num_taken += 1
        async with self.one_taken:
            self.one_taken.notify_all()

    async def wait_for_submissions(self, count: int) -> None:
        """Wait until the first `count` submissions have been processed.

        Raises `ClusterError` if one of them does not arrive although the client gives
        signs of life, or if `count` is not a number.
        """
        known = self.num_taken
        if type(count) is not int or not 0 <= count <= known + MOST_EARLY:
            raise ClusterError(f"submission {count!r}; wanted one after {known}")
        before, since_s = self.num_taken, self.seen_s
        while self.num_taken < count:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S), self.one_taken:
                    await self.one_taken.wait_for(lambda: self.num_taken >= count)
            if self.num_taken > before or self.is_held:
                before, since_s = self.num_taken, self.seen_s
            elif self.is_ended or self.seen_s - since_s > _ARRIVAL_S:
                raise ClusterError(
                    f"submission {before} has not arrived in {_ARRIVAL_S} s"
                )


@dataclass(frozen=True, slots=True)
class Status:
    """The state of the workers and the tenants.

    places: host and process of each worker; empty while they start.
    devices: the number of all devices; 0 while the workers start.
    used_s: seconds that each tenant has used, divided by its weight.
    failure: the reason why workers have failed to start several times; "" if they run,
        or are still being tried.
    num_losses: number of times that the session that asks has lost its arrays.
    """

    attempt: int
    size: GangSize
    places: tuple[str, ...]
    devices: int
    sessions: Mapping[str, int]
    used_s: Mapping[str, float]
    failure: str = ""
    num_losses: int = 0

    def __str__(self) -> str:
        state = "ready" if self.places else "starting"
        lines = [f"gang attempt {self.attempt}, {state}: {self.size}"]
        if self.failure:
            lines.append(f"the workers do not start: {self.failure}")
        lines += [f"worker {i}: {place}" for i, place in enumerate(self.places)]
        for tenant, used_s in self.used_s.items():
            count = self.sessions.get(tenant, 0)
            lines.append(f"{tenant}: {count} sessions, {used_s:.1f} s used per weight")
        return "\n".join(lines)
