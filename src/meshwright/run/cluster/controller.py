"""The controller: the one process that orders all programs of a cluster.

Clients open a session with the token of their tenant, ask for slices, and submit
requests, which `admission` checks and queues on the island. The controller holds no array
and no JAX: the clients trace, the workers compute.
"""

import asyncio
import hmac
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

from meshwright.errors import ClusterError
from meshwright.run.cluster.admission import Admission
from meshwright.run.cluster.events import Event, EventLog
from meshwright.run.cluster.gang import GangEngine, GangSize
from meshwright.run.cluster.island import Island, IslandLimits
from meshwright.run.cluster.tenants import Session, Status, Tenant
from meshwright.run.cluster.wire.messages import ArrayKey, Define, End, Request


class Controller:
    """Sessions of tenants on one island.

    silence_s: seconds after which a client that says nothing is taken to be dead; its
        arrays are then freed.
    """

    def __init__(
        self,
        engine: GangEngine,
        size: GangSize,
        tenants: Sequence[Tenant],
        log: EventLog | None = None,
        limits: IslandLimits | None = None,
        silence_s: float = 30.0,
    ) -> None:
        self.log = log or EventLog()
        self.silence_s = silence_s
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._sessions: dict[str, Session] = {}
        self._slices = iter(range(1, 2**62))
        self.island = Island(
            engine,
            size,
            self.log,
            limits or IslandLimits(),
            self._on_loss,
            self._definitions,
        )
        for tenant in tenants:
            self.island.queue.set_weight(tenant.name, tenant.weight)
        self._admission = Admission(self.island, self._sessions)
        self._tasks: list[asyncio.Task[Any]] = []

    async def start(self) -> None:
        """Start the island; requests may be submitted before its gang is ready."""
        tasks = self.island.run(), self._end_silent_sessions()
        self._tasks = [asyncio.create_task(task) for task in tasks]

    async def stop(self) -> None:
        """End the workers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- sessions ------------------------------------------------------------------------

    async def open(self, token: str) -> str:
        """The name of a new session, which each request of the client must give."""
        given = str(token).encode(errors="replace")
        for tenant in self._tenants.values():
            if hmac.compare_digest(tenant.token.encode(), given):
                name = secrets.token_hex(16)
                self._sessions[name] = Session(name, tenant, time.monotonic())
                self.log.add("open", f"a session of {tenant.name}")
                return name
        raise ClusterError("the token is that of no tenant of this cluster")

    async def close(self, session: str) -> None:
        """End a session and free its arrays."""
        self._end(self._session(session), "closed")

    async def beat(self, session: str) -> None:
        """Say that the client lives."""
        self._session(session)

    async def status(self, session: str) -> Status:
        """The state of the workers and the tenants."""
        self._session(session)
        counts: dict[str, int] = {}
        for each in self._sessions.values():
            counts[each.tenant.name] = counts.get(each.tenant.name, 0) + 1
        island = self.island
        gang = None if island.is_lost else island.gang
        places = () if gang is None else gang.places
        devices = 0 if gang is None else len(gang.processes)
        used_s = island.queue.used_s
        return Status(island.attempt, island.size, places, devices, counts, used_s)

    async def events(self, session: str, after: int = 0) -> list[Event]:
        """The events of the cluster after the first `after`."""
        self._session(session)
        if type(after) is not int:
            raise ClusterError(f"events after {after!r:.60}; wanted a number")
        return self.log.events[after:]

    def _session(self, name: str) -> Session:
        session = self._sessions.get(name) if type(name) is str else None
        if session is None:
            raise ClusterError(
                "the session is unknown: it was closed, its client was silent for "
                f"{self.silence_s:.0f} s, or the controller was restarted; connect again"
            )
        session.seen_s = time.monotonic()
        return session

    def _end(self, session: Session, why: str) -> None:
        del self._sessions[session.name]
        self.log.add("close", f"a session of {session.tenant.name}: {why}")
        self._admission.queue(session, End())
        self.island.forget(session.name)

    async def _end_silent_sessions(self) -> None:
        while True:
            await asyncio.sleep(self.silence_s / 4)
            least_s = time.monotonic() - self.silence_s
            for session in [s for s in self._sessions.values() if s.seen_s < least_s]:
                self._end(session, f"silent for {self.silence_s:.0f} s")

    # -- slices --------------------------------------------------------------------------

    async def slice(self, session: str, count: int) -> tuple[int, tuple[int, ...], str]:
        """The number of a new slice of `count` devices, their positions and platform.

        The devices are neighbours, and those that the fewest slices have.
        """
        owner = self._session(session)
        await self._ready(owner)
        assert self.island.gang is not None
        total = len(self.island.gang.processes)
        if type(count) is not int or not 0 < count <= total:
            raise ClusterError(
                f"a slice of {count!r} devices; the cluster has {total} "
                f"({self.island.size})"
            )
        self._require_devices(owner, count)
        load = [0] * total
        for devices in self._all_slices():
            for device in devices:
                load[device] += 1
        starts = range(0, total - count + 1, count)
        start = min(starts, key=lambda s: (max(load[s : s + count]), s))
        number, devices = next(self._slices), tuple(range(start, start + count))
        owner.slices[number] = devices
        return number, devices, self.island.gang.platform

    def _require_devices(self, owner: Session, count: int) -> None:
        tenant = owner.tenant
        taken = sum(
            len(devices)
            for each in self._sessions.values()
            if each.tenant is tenant
            for devices in each.slices.values()
        )
        if taken + count > tenant.max_devices:
            raise ClusterError(
                f"tenant {tenant.name} may have {tenant.max_devices:.0f} devices and has "
                f"{taken}; release a slice, or ask for one of fewer than {count}"
            )

    def _all_slices(self) -> Iterator[tuple[int, ...]]:
        for each in self._sessions.values():
            yield from each.slices.values()

    async def release(self, session: str, number: int) -> None:
        """Give a slice back."""
        slices = self._session(session).slices
        if type(number) is not int or slices.pop(number, None) is None:
            raise ClusterError(f"slice {number!r} is none of this session")

    # -- requests ------------------------------------------------------------------------

    async def submit(
        self, session: str, number: int, requests: Sequence[Request]
    ) -> None:
        """Queue requests in their order; waits while the tenant's queue is full.

        number: 0 for the first submission of a session, 1 for the second, and so on.
        Raises `ClusterError` for the first request that is refused; the others are queued
        all the same, unless they read what refused ones would have made.
        """
        owner = self._session(session)
        await owner.wait_for_submissions(number)
        if number < owner.num_taken:
            raise ClusterError(f"submission {number} was taken already")
        try:
            self._admission.admit_all(owner, requests)
        finally:
            owner.num_taken += 1
            async with owner.one_taken:
                owner.one_taken.notify_all()
        tenant = owner.tenant
        await self.island.wait_for_room(tenant.name, tenant.queue)

    async def fetch(self, session: str, after: int, number: int) -> list[Any]:
        """The parts of an array from all workers that have some, once it is computed.

        after: number of submissions that the client has made before.
        """
        owner = self._session(session)
        await owner.wait_for_submissions(after)
        record = self._admission.require_array(owner, number)
        await asyncio.shield(record.made)
        gang = self.island.gang
        if gang is None:
            raise ClusterError("the gang that had the array is lost")
        key = ArrayKey(session, number)
        everywhere = range(len(gang.processes))
        devices = everywhere if record.devices is None else record.devices
        workers = dict.fromkeys(gang.processes[device] for device in devices)
        try:
            return list(await asyncio.gather(*(gang.fetch(w, key) for w in workers)))
        except ClusterError:
            raise
        except Exception as error:  # noqa: BLE001  of the engine, whichever it is
            reason = f"a worker is gone ({type(error).__name__})"
            self.island.lose(reason)
            raise ClusterError(f"the workers were lost ({reason})") from None

    # -- losses --------------------------------------------------------------------------

    async def _ready(self, owner: Session) -> None:
        """Wait for the gang; the client counts as alive meanwhile."""
        while self.island.gang is None:
            await asyncio.sleep(0.05)
            owner.seen_s = time.monotonic()

    def _on_loss(self, reason: str) -> None:
        """Forget the arrays of a lost gang, and remember why they are gone."""
        why = f"the workers were lost ({reason}); put the state again, or restore it"
        for session in self._sessions.values():
            session.gone |= dict.fromkeys(session.arrays, why)
            session.arrays.clear()

    def _definitions(self) -> Iterator[tuple[str, Define]]:
        """All programs of all sessions, which a new gang needs.

        Slices and programs for which the gang has too few devices are dropped.
        """
        gang = self.island.gang
        total = 0 if gang is None else len(gang.processes)
        for session in self._sessions.values():
            session.slices = {
                n: devices
                for n, devices in session.slices.items()
                if max(devices) < total
            }
            kept = {
                n: define
                for n, define in session.programs.items()
                if max(define.devices) < total
            }
            session.programs = kept
            for define in kept.values():
                yield session.name, define

    async def resize(self, session: str, workers: int) -> None:
        """Go on with another number of workers; arrays are lost as with a failure.

        Slices that no longer fit are given back.
        """
        self._require_operator(self._session(session))
        if type(workers) is not int or workers < 1:
            raise ClusterError(f"{workers!r} workers; wanted a number >= 1")
        island = self.island
        island.size = GangSize(workers, island.size.devices)
        island.lose(f"resized to {island.size}")

    async def shutdown(self, session: str) -> None:
        """End all sessions and all workers."""
        self._require_operator(self._session(session))
        for each in list(self._sessions.values()):
            self._end(each, "the cluster was stopped")
        await self.stop()

    def _require_operator(self, session: Session) -> None:
        tenant = session.tenant
        if not tenant.is_operator:
            raise ClusterError(
                f"tenant {tenant.name} is no operator; only one may resize or stop the "
                "cluster, since all tenants lose their arrays"
            )
