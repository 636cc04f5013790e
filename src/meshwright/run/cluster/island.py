"""An island: one gang of workers, and the one order of all requests that reach it.

It keeps few instructions on their way to the workers at once, so that a tenant's turn
comes soon; it learns from completions how long each program takes, and finds that the
gang is lost: a worker has died, answers nothing, or completes nothing.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from meshwright.errors import ClusterError
from meshwright.run.cluster.events import EventLog
from meshwright.run.cluster.gang import Gang, GangEngine, GangSize
from meshwright.run.cluster.order import FairQueue
from meshwright.run.cluster.wire.messages import Call, End, Request, WorkerInstruction


@dataclass(frozen=True, slots=True)
class IslandLimits:
    """Limits of an island.

    depth: instructions on their way at once. ahead_s: seconds of work, by what programs
        took before, for which more may be on their way, up to `most`.
    answer_s: seconds within which a worker must answer. stall_s: seconds within which
        something on its way must complete.
    """

    depth: int = 8
    ahead_s: float = 0.1
    most: int = 256
    answer_s: float = 20.0
    stall_s: float = 600.0


@dataclass(slots=True, eq=False)
class QueuedRequest:
    """A request of one session that waits for its turn, or is on its way.

    completed: done when all workers have completed it; an exception says why they never
        will.
    expected_s: seconds that were expected when it was taken. waiting_for: workers that
        have not completed it.
    """

    session: str
    request: Request | End
    completed: asyncio.Future[None]
    tenant: str
    expected_s: float = 0.0
    waiting_for: set[int] = field(default_factory=set)
    took_s: float = 0.0


class Island:
    """The queue and the current gang.

    on_loss: called with the reason when the gang is lost, before the next one starts.
    setup: the requests, with their sessions, that each new gang gets first.
    """

    def __init__(
        self,
        engine: GangEngine,
        size: GangSize,
        log: EventLog,
        limits: IslandLimits,
        on_loss: Callable[[str], None],
        setup: Callable[[], Iterable[tuple[str, Request]]],
    ) -> None:
        self.engine, self.size, self.log, self.limits = engine, size, log, limits
        self.queue: FairQueue[QueuedRequest] = FairQueue()
        self.gang: Gang | None = None
        self.attempt = 0
        self._on_loss, self._setup = on_loss, setup
        self._number = 0
        self._on_way: dict[int, QueuedRequest] = {}
        self._ahead_s = 0.0  # expected seconds of those on their way
        self._measured_s: dict[tuple[str, int], float] = {}
        self._wake = asyncio.Event()
        self._progress_s = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._room = asyncio.Condition()
        self._lost: asyncio.Future[str] | None = None

    # -- gangs ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep a gang running until cancelled; start the next when one is lost."""
        try:
            while True:
                await self._start()
                assert self._lost is not None
                reason = await self._lost
                await self._stop()
                self.log.add("lost", f"attempt {self.attempt}: {reason}")
                await self._drop(reason)
                self._on_loss(reason)
        finally:
            await self._stop()

    async def _start(self) -> None:
        """Start a gang; what was defined is defined again."""
        while self.gang is None:
            self.attempt += 1
            self.log.add("start", f"attempt {self.attempt} with {self.size}")
            try:
                self.gang = await self.engine.start(self.size, self.attempt)
            except ClusterError as error:
                self.log.add("failed", f"attempt {self.attempt}: {error}")
                await asyncio.sleep(1.0)
        places = ", ".join(self.gang.places)
        self.log.add("ready", f"attempt {self.attempt}: {places}")
        self._lost = asyncio.get_running_loop().create_future()
        self._number, self._progress_s = 0, time.monotonic()
        instructions = [self._instruction(s, r) for s, r in self._setup()]
        if instructions:
            self.gang.send(instructions)
        first = self._number
        follow = [self._follow(i, first) for i in range(self.gang.num_workers)]
        tasks = [self._dispatch(self.gang), self._find_stall(), *follow]
        self._tasks = [asyncio.create_task(task) for task in tasks]

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        gang, self.gang = self.gang, None
        if gang is not None:
            await gang.stop()

    @property
    def is_lost(self) -> bool:
        """Whether the gang has been given up, and the next does not run yet."""
        return self._lost is None or self._lost.done()

    def lose(self, reason: str) -> None:
        """Give the gang up; another is started."""
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(reason)

    async def _drop(self, reason: str) -> None:
        """Fail all that waits and all that is on its way."""
        error = ClusterError(f"the workers were lost ({reason})")
        dropped = [e for t in self.queue.used_s for e in self.queue.drop(t)]
        for entry in [*dropped, *self._on_way.values()]:
            entry.completed.set_exception(error)
            entry.completed.exception()  # nobody may be waiting for it
        self._on_way.clear()
        self._ahead_s = 0.0
        async with self._room:
            self._room.notify_all()

    # -- requests ------------------------------------------------------------------------

    def add(self, tenant: str, session: str, request: Request | End) -> QueuedRequest:
        """Queue a request of a tenant."""
        completed = asyncio.get_running_loop().create_future()
        entry = QueuedRequest(session, request, completed, tenant)
        self.queue.add(tenant, entry)
        self._wake.set()
        return entry

    def forget(self, session: str) -> None:
        """Forget how long the programs of a session take."""
        self._measured_s = {
            k: v for k, v in self._measured_s.items() if k[0] != session
        }

    async def wait_for_room(self, tenant: str, limit: int) -> None:
        """Wait until fewer than `limit` requests of a tenant wait."""
        async with self._room:
            await self._room.wait_for(lambda: self.queue.length(tenant) < limit)

    def _instruction(self, session: str, request: Request | End) -> WorkerInstruction:
        self._number += 1
        return WorkerInstruction(self._number, session, request)

    async def _dispatch(self, gang: Gang) -> None:
        """Send requests in the queue's order, while few are on their way."""
        while True:
            self._wake.clear()
            batch: list[WorkerInstruction] = []
            is_low = self._has_room(0.5)  # so that several go in one message
            while is_low and self._has_room():
                found = self.queue.take(self._expect)
                if found is None:
                    break
                _, entry = found
                self._ahead_s += entry.expected_s
                instruction = self._instruction(entry.session, entry.request)
                entry.waiting_for = set(range(gang.num_workers))
                self._on_way[instruction.number] = entry
                batch.append(instruction)
            if batch:
                gang.send(batch)
                async with self._room:
                    self._room.notify_all()
            await self._wake.wait()

    def _expect(self, entry: QueuedRequest) -> float:
        """The seconds that a request will take, by those of the same program before."""
        if isinstance(entry.request, Call):
            key = entry.session, entry.request.program
            entry.expected_s = self._measured_s.get(key, 1e-3)
        return entry.expected_s

    def _has_room(self, share: float = 1.0) -> bool:
        """Whether less than a share of what may be on its way is on its way."""
        count, limits = len(self._on_way), self.limits
        is_short = self._ahead_s < share * limits.ahead_s
        return count < share * limits.depth or (
            is_short and count < share * limits.most
        )

    # -- progress ------------------------------------------------------------------------

    async def _follow(self, worker: int, after: int) -> None:
        """Take in the completions of one worker, and find that it is gone."""
        gang = self.gang
        assert gang is not None
        while True:
            try:
                answer = gang.completions(worker, after)
                found = await asyncio.wait_for(answer, self.limits.answer_s)
            except TimeoutError:
                waited = f"{self.limits.answer_s:.0f} s"
                self.lose(f"worker {worker} has not answered for {waited}")
                return
            except Exception as error:  # noqa: BLE001  of the engine, whichever it is
                self.lose(f"worker {worker} is gone ({type(error).__name__})")
                return
            for number, seconds, error in found:
                after = max(after, number)
                self._complete(worker, number, seconds, error)

    def _complete(self, worker: int, number: int, seconds: float, error: str) -> None:
        """Record the completion of an instruction on one worker."""
        self._progress_s = time.monotonic()
        entry = self._on_way.get(number)
        if entry is None:
            return
        if error and not entry.took_s:
            self.log.add("error", f"worker {worker}, request {number}: {error:.300}")
        entry.took_s = max(entry.took_s, seconds)
        entry.waiting_for.discard(worker)
        if entry.waiting_for:
            return
        del self._on_way[number]
        self._ahead_s -= entry.expected_s
        entry.completed.set_result(None)
        self.queue.charge(entry.tenant, entry.took_s - entry.expected_s)
        if isinstance(entry.request, Call):
            key = entry.session, entry.request.program
            known = self._measured_s.get(key, entry.took_s)
            self._measured_s[key] = 0.5 * known + 0.5 * entry.took_s
        self._wake.set()

    async def _find_stall(self) -> None:
        """Give the gang up if something is on its way, and nothing completes for long."""
        while True:
            await asyncio.sleep(min(1.0, self.limits.stall_s / 4))
            if not self._on_way:
                self._progress_s = time.monotonic()
            elif time.monotonic() - self._progress_s > self.limits.stall_s:
                waiting = {w for e in self._on_way.values() for w in e.waiting_for}
                self.lose(
                    f"nothing has completed for {self.limits.stall_s:.0f} s; waiting for "
                    f"workers {sorted(waiting)}"
                )
                return
