"""The controller: the one process that orders all programs of a cluster.

Clients open a session with the token of their tenant, ask for slices, and submit
requests, which `admission` checks and queues on the island. The controller holds no array
and no JAX: the clients trace, the workers compute.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from meshwright.errors import ClusterError
from meshwright.features.cluster.controller.admission import Admission
from meshwright.features.cluster.controller.events import Event, EventLog
from meshwright.features.cluster.controller.gang import GangEngine, GangSize
from meshwright.features.cluster.controller.island import Island
from meshwright.features.cluster.controller.limits import MOST_ARRAYS, IslandLimits
from meshwright.features.cluster.controller.requests import IslandClients
from meshwright.features.cluster.controller.running_clock import RunningClock
from meshwright.features.cluster.controller.sessions import Sessions
from meshwright.features.cluster.controller.slices import Slices
from meshwright.features.cluster.controller.tenants import Session, Status, Tenant
from meshwright.features.cluster.wire.messages import (
    ArrayKey,
    Define,
    End,
    Free,
    Request,
)


class Controller:
    """The sessions of all tenants, on one island (one gang of workers).

    silence_s: seconds without any message after which a client is taken to be dead; its
        arrays are then freed, and its devices are others'. If it is heard again, its
        session goes on without the arrays.
    clock: a function that returns seconds from an arbitrary start; by default those for
        which this process runs, so that its own pause is nobody's silence.
    """

    def __init__(
        self,
        engine: GangEngine,
        size: GangSize,
        tenants: Sequence[Tenant],
        limits: IslandLimits | None = None,
        silence_s: float = 30.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.log = EventLog()
        self.silence_s = silence_s
        self._clock = clock = clock or RunningClock(self._log_pause)
        self._sessions = Sessions(tenants, silence_s, clock, self._go_on)
        self._slices = Slices(self._sessions.known)
        self.island = Island(
            engine,
            size,
            self.log,
            limits or IslandLimits(),
            IslandClients(self._on_loss, self._definitions, self._slices.placed),
            clock,
        )
        for tenant in tenants:
            self.island.queue.set_weight(tenant.name, tenant.weight)
        self._admission = Admission(self.island, self._sessions.known)
        self._tasks: list[asyncio.Task[Any]] = []

    async def start(self) -> None:
        """Start the island; requests may be submitted before its gang is ready."""
        tasks = self.island.run(), self._put_silent_aside()
        self._tasks = [asyncio.create_task(task) for task in tasks]
        for task in self._tasks:
            task.add_done_callback(self._log_end)

    def _log_end(self, task: asyncio.Task[Any]) -> None:
        """Log the error that has ended a task of the controller."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            text = f"the controller stands still: {type(error).__name__}: {error}"
            self.log.add("failed", text)

    def _log_pause(self, seconds: float) -> None:
        text = f"the controller stood still for {seconds:.0f} s, which count for nobody"
        self.log.add("paused", text)

    async def stop(self) -> None:
        """End the workers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- sessions ------------------------------------------------------------------------

    async def open(self, token: str) -> str:
        """The name of a new session, which each request of the client must give."""
        session = self._sessions.open(token)
        self.log.add("open", f"a session of {session.tenant.name}")
        return session.name

    async def close(self, session: str) -> None:
        """End a session and free its arrays."""
        self._end(self._sessions.require(session), "closed")

    async def beat(self, session: str) -> str:
        """Record a sign of life of a session's client.

        Returns what everybody waits for if it takes long, such as the start of workers.
        """
        self._sessions.require(session)
        return self.island.waits_for

    async def status(self, session: str) -> Status:
        """The state of the workers and the tenants."""
        owner = self._sessions.require(session)
        counts = self._sessions.counts()
        island = self.island
        gang = None if island.is_lost else island.gang
        places = () if gang is None else gang.places
        devices = 0 if gang is None else len(gang.processes)
        used_s = island.queue.used_s
        return Status(
            island.attempt,
            island.size,
            places,
            devices,
            counts,
            used_s,
            island.failure,
            owner.num_losses,
        )

    async def events(self, session: str, after: int = 0) -> list[Event]:
        """The events of the cluster with numbers greater than `after`."""
        self._sessions.require(session)
        if type(after) is not int:
            raise ClusterError(f"events after {after!r:.60}; wanted a number")
        return self.log.after(after)

    def _end(self, session: Session, why: str) -> None:
        self._sessions.end(session)
        self._free_all(session, why)

    def _free_all(self, session: Session, why: str) -> None:
        self.log.add("close", f"a session of {session.tenant.name}: {why}")
        self._admission.queue(session, End())
        self.island.program_times.forget(session.name)

    async def _put_silent_aside(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self.silence_s / 4))
            for session in self._sessions.silent():
                why = f"its client was silent for {self.silence_s:.0f} s"
                self._sessions.put_aside(session)
                session.lose_arrays(f"{why}, and its arrays were freed")
                self._free_all(session, why)

    def _go_on(self, session: Session) -> None:
        """Give a session, whose client is heard again, devices and its programs.

        Raises `ClusterError` if other sessions of its tenant have its devices now.
        """
        gang = self.island.gang
        self._slices.take_back(session, 0 if gang is None else len(gang.processes))
        self.log.add("open", f"a session of {session.tenant.name} is heard again")
        if gang is not None:  # the next one gets all programs anyway
            for define in self._present_programs(session):
                self._admission.queue(session, define)

    # -- slices --------------------------------------------------------------------------

    async def slice(self, session: str, count: int) -> tuple[int, tuple[int, ...], str]:
        """Reserve devices; returns the slice's number, their positions and their platform.

        The devices are neighbours, and belong to as few other slices as possible.
        """
        with self._sessions.call(session) as owner:
            await self._ready(owner)
        owner, gang = self._sessions.require(session), self.island.gang
        assert gang is not None
        total = len(gang.processes)
        if type(count) is not int or not 0 < count <= total:
            raise ClusterError(
                f"a slice of {count!r} devices; the cluster has {total} "
                f"({self.island.size})"
            )
        return *self._slices.add(owner, count, total), gang.platform

    async def release(self, session: str, number: int) -> None:
        """Give a slice back; its programs are forgotten."""
        owner = self._sessions.require(session)
        if type(number) is not int or owner.slices.pop(number, None) is None:
            raise ClusterError(f"slice {number!r} is none of this session")
        left = set(owner.slices.values())
        gone = [n for n, each in owner.programs.items() if each.devices not in left]
        for each in gone:
            del owner.programs[each]
        if gone:
            self._admission.queue(owner, Free((), tuple(gone)))

    # -- requests ------------------------------------------------------------------------

    async def submit(
        self, session: str, number: int, requests: Sequence[Request]
    ) -> None:
        """Queue requests in their order; waits while the tenant's queue is full.

        number: 0 for the first submission of a session, 1 for the second, and so on.
        Raises `ClusterError` for the first request that is refused. The other requests
        are queued nevertheless, unless they read an array that a refused request would
        have made.
        """
        with self._sessions.call(session) as owner:
            await owner.wait_for_submissions(number)
            name, limit = owner.tenant.name, owner.tenant.queue
            if number == owner.num_taken:
                owner.is_held = True
                await self.island.wait_for_room(name, limit)
            await owner.is_awake.wait()
            self._sessions.require(session)  # it may have ended meanwhile
            if number < owner.num_taken:
                raise ClusterError(f"submission {number} was taken already")
            try:
                self._admission.admit_all(owner, requests)
            finally:
                owner.is_held = False
                await owner.take()
            await self.island.wait_for_room(name, limit)

    async def fetch_all(
        self, session: str, after: int, numbers: Sequence[int]
    ) -> list[list[Any]]:
        """The parts of arrays, from all workers that hold some, once they are computed.

        after: number of submissions that the client had made before this call.
        """
        if type(numbers) not in (list, tuple) or len(numbers) > MOST_ARRAYS:
            raise ClusterError(f"arrays {numbers!r:.60}; wanted a list of numbers")
        with self._sessions.call(session) as owner:
            await owner.wait_for_submissions(after)
            return await asyncio.gather(*(self._fetch(owner, n) for n in numbers))

    async def wait(self, session: str, after: int, number: int) -> None:
        """Answer once an array is computed; `after` as for `fetch_all`."""
        with self._sessions.call(session) as owner:
            await owner.wait_for_submissions(after)
            record = self._admission.require_array(owner, number)
            await asyncio.shield(record.made)

    async def _fetch(self, owner: Session, number: int) -> list[Any]:
        record = self._admission.require_array(owner, number)
        await asyncio.shield(record.made)
        gang = self.island.gang
        if gang is None:
            raise ClusterError("the gang that had the array is lost")
        key, devices = ArrayKey(owner.name, number), range(len(gang.processes))
        if record.devices is not None:
            found = owner.present(record.devices) or ()
            devices = found[:1] if record.is_whole else found
        workers = dict.fromkeys(gang.processes[device] for device in devices)
        try:
            return list(await asyncio.gather(*(gang.fetch(w, key) for w in workers)))
        except ClusterError:
            raise
        except ConnectionError as error:
            reason = f"a worker is gone ({error})"
            self.island.lose(reason)
            raise ClusterError(f"the workers were lost ({reason})") from None
        except Exception as error:
            raise ClusterError(
                f"array {number} cannot be read: {type(error).__name__}: {error}"
            ) from error

    # -- losses --------------------------------------------------------------------------

    async def _ready(self, owner: Session) -> None:
        """Wait until the gang of workers runs; the client counts as alive meanwhile.

        Raises `ClusterError` if the gang has failed to start several times.
        """
        while self.island.gang is None:
            if reason := self.island.failure:
                raise ClusterError(f"the workers do not start: {reason}")
            await asyncio.sleep(0.05)
            owner.seen_s = self._clock()

    def _on_loss(self, reason: str) -> None:
        """Forget the arrays that were lost with a gang of workers; remember the reason."""
        for session in self._sessions.known.values():
            session.lose_arrays(f"the workers were lost ({reason})")

    def _definitions(self) -> Iterator[tuple[str, Define]]:
        """The programs, with their sessions, whose slices have devices in the new gang."""
        gang = self.island.gang
        self._slices.fit(0 if gang is None else len(gang.processes))
        for session in self._sessions.known.values():
            for define in self._present_programs(session):
                yield session.name, define

    def _present_programs(self, session: Session) -> list[Define]:
        programs = session.programs.values()
        return [p for p in programs if session.present(p.devices) is not None]

    async def resize(self, session: str, workers: int) -> None:
        """Change the number of workers; arrays are lost, as after a failure.

        Slices are moved if they still fit. A slice that does not fit has no devices
        until there are enough again.
        """
        self._require_operator(self._sessions.require(session))
        if type(workers) is not int or workers < 1:
            raise ClusterError(f"{workers!r} workers; wanted a number >= 1")
        size = GangSize(workers, self.island.size.devices)
        self.island.engine.require_possible(size)
        self.island.resize(size)

    async def shutdown(self, session: str) -> None:
        """End all sessions and all workers."""
        self._require_operator(self._sessions.require(session))
        for each in list(self._sessions.known.values()):
            self._end(each, "the cluster was stopped")
        await self.stop()

    def _require_operator(self, session: Session) -> None:
        tenant = session.tenant
        if not tenant.is_operator:
            raise ClusterError(
                f"tenant {tenant.name} is no operator; only one may resize or stop the "
                "cluster, since all tenants lose their arrays"
            )
