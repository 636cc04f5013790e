"""An island: one gang of workers, and the single queue of all requests for it.

Only few instructions are on their way to the workers at a time, so that each tenant's
turn comes soon. Completions tell the island how long each program takes. It declares
the gang lost if a worker has died, does not answer, or completes nothing for long.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from typing import Any

from meshwright.errors import ClusterError
from meshwright.features.cluster.controller.events import EventLog
from meshwright.features.cluster.controller.fair_order import FairQueue
from meshwright.features.cluster.controller.gang import Gang, GangEngine, GangSize
from meshwright.features.cluster.controller.limits import IslandLimits
from meshwright.features.cluster.controller.program_times import ProgramTimes
from meshwright.features.cluster.controller.requests import (
    IslandClients,
    QueuedRequest,
    running_name,
)
from meshwright.features.cluster.controller.running_clock import within
from meshwright.features.cluster.wire.messages import (
    End,
    Request,
    WorkerInstruction,
)


class Island:
    """The queue of all tenants' requests, and the present gang of workers.

    clock: a function that returns seconds from an arbitrary start.
    """

    def __init__(
        self,
        engine: GangEngine,
        size: GangSize,
        log: EventLog,
        limits: IslandLimits,
        clients: IslandClients,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine, self.size, self.log, self.limits = engine, size, log, limits
        self.queue: FairQueue[QueuedRequest] = FairQueue()
        self.program_times = ProgramTimes()
        self.gang: Gang | None = None
        self.attempt = 0
        self._clients = clients
        self._clock = clock
        self._reasons: list[str] = []  # why no gang has started since the last one
        self._number = 0
        self._on_way: dict[int, QueuedRequest] = {}
        self._ahead_s = 0.0  # expected seconds of instructions on their way
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
                self._clients.on_loss(reason)
        finally:
            await self._stop()

    async def _start(self) -> None:
        """Start a gang, and try again until one has started."""
        while self.gang is None:
            self.attempt += 1
            self.log.add("start", f"attempt {self.attempt} with {self.size}")
            try:
                await self._start_once()
            except Exception as error:  # noqa: BLE001  of the engine, whichever it is
                own = isinstance(error, ClusterError)
                reason = str(error) if own else f"{type(error).__name__}: {error}"
                self.log.add("failed", f"attempt {self.attempt}: {reason}")
                self._reasons.append(reason)
                await self._stop()
                if self.failure:  # clients wait for answers that may never come
                    await self._drop(reason)
                    self._clients.on_loss(reason)
                await asyncio.sleep(self.limits.retry_s)

    async def _start_once(self) -> None:
        """Start a gang of the wanted size, and define all programs on it again."""
        size = self.size
        gang = await self.engine.start(size, self.attempt)
        self.gang, self._lost = gang, asyncio.get_running_loop().create_future()
        self._number, self._progress_s = 0, self._clock()
        instructions = [self._instruction(s, r) for s, r in self._clients.setup()]
        if instructions:
            gang.send(instructions)
        self._begin(self._dispatch(gang), self._find_stall())
        self._begin(*(self._follow(i, self._number) for i in range(gang.num_workers)))
        self._reasons = []
        self.log.add("ready", f"attempt {self.attempt}: {', '.join(gang.places)}")
        if size != self.size:
            self.lose(f"resized to {self.size} while it started")

    def _begin(self, *coroutines: Coroutine[Any, Any, None]) -> None:
        """Start the tasks that serve the gang; if one fails, the gang is given up."""

        def end(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self.lose(f"{type(error).__name__} in the controller: {error}")

        for each in coroutines:
            task = asyncio.create_task(each)
            task.add_done_callback(end)
            self._tasks.append(task)

    async def _stop(self) -> None:
        """End the gang and the tasks that serve it, even if the engine fails to."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        gang, self.gang = self.gang, None
        if gang is not None:
            try:
                await gang.stop()
            except Exception as error:  # noqa: BLE001  of the engine, whichever it is
                text = f"{type(error).__name__}: {error}"
                self.log.add("failed", f"attempt {self.attempt} was not ended: {text}")

    def resize(self, size: GangSize) -> None:
        """Replace the gang by one of another size, also while one is being started."""
        self.size, self._reasons = size, []
        self.lose(f"resized to {size}")

    @property
    def failure(self) -> str:
        """The reason why gangs fail to start; "" while one runs or is still being tried."""
        count = len(self._reasons)
        return self._reasons[-1] if count >= self.limits.tries else ""

    @property
    def is_lost(self) -> bool:
        """Whether the gang has been given up and the next one does not run yet."""
        return self._lost is None or self._lost.done()

    def lose(self, reason: str) -> None:
        """Give the gang up; another is started."""
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(reason)

    async def _drop(self, reason: str) -> None:
        """Fail all requests that wait and all that are on their way to workers."""
        error = ClusterError(f"the workers were lost ({reason})")
        dropped = [e for t in self.queue.used_s for e in self.queue.drop(t)]
        for entry in [*dropped, *self._on_way.values()]:
            with contextlib.suppress(asyncio.InvalidStateError):  # cancelled
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

    async def wait_for_room(self, tenant: str, limit: int) -> None:
        """Wait until fewer than `limit` requests of a tenant wait."""
        async with self._room:
            await self._room.wait_for(lambda: self.queue.length(tenant) < limit)

    def _instruction(self, session: str, request: Request | End) -> WorkerInstruction:
        self._number += 1
        placed = self._clients.place(session, request)
        return WorkerInstruction(self._number, session, placed)

    async def _dispatch(self, gang: Gang) -> None:
        """Send requests to the workers in the queue's order, only few at a time."""
        while True:
            self._wake.clear()
            batch: list[WorkerInstruction] = []
            is_low = self._has_room(0.5)  # so that several go in one message
            while is_low and self._has_room():
                found = self.queue.take(self.program_times.expect)
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

    def _has_room(self, share: float = 1.0) -> bool:
        """Whether more requests may be sent to the workers.

        share: share of the allowed number of requests on their way that may be used.
        """
        count, limits = len(self._on_way), self.limits
        is_short = self._ahead_s < share * limits.ahead_s
        return count < share * limits.depth or (
            is_short and count < share * limits.most
        )

    # -- progress ------------------------------------------------------------------------

    async def _follow(self, worker: int, after: int) -> None:
        """Process one worker's completions, and detect that the worker is gone."""
        gang = self.gang
        assert gang is not None
        while True:
            try:
                answer = gang.completions(worker, after)
                completions = await within(answer, self.limits.answer_s, self._clock)
            except TimeoutError:
                fault = f"has not answered for {self.limits.answer_s:.0f} s"
                self.lose(f"worker {worker} {fault}{self._running(worker)}")
                return
            except Exception as error:  # noqa: BLE001  of the engine, whichever it is
                fault = f"is gone ({type(error).__name__})"
                self.lose(f"worker {worker} {fault}{self._running(worker)}")
                return
            for number, seconds, error in completions:
                if number != after + 1:
                    self.lose(f"worker {worker} has skipped instruction {after + 1}")
                    return
                after = number
                self._complete(worker, number, seconds, error)

    def _complete(self, worker: int, number: int, seconds: float, error: str) -> None:
        """Record the completion of an instruction on one worker."""
        self._progress_s = self._clock()
        entry = self._on_way.get(number)
        if entry is None:
            return
        if error and not entry.has_failed:
            entry.has_failed = True
            self.log.add("error", f"worker {worker}, request {number}: {error:.300}")
        entry.took_s = max(entry.took_s, seconds)
        entry.waiting_for.discard(worker)
        if entry.waiting_for:
            return
        del self._on_way[number]
        self._ahead_s -= entry.expected_s
        if not entry.completed.done():  # it was cancelled
            entry.completed.set_result(None)
        self.queue.charge(entry.tenant, entry.took_s - entry.expected_s)
        self.program_times.add(entry)
        self._wake.set()

    async def _find_stall(self) -> None:
        """Give the gang up if instructions are on their way and none completes for long."""
        while True:
            await asyncio.sleep(min(1.0, self.limits.stall_s / 4))
            if not self._on_way:
                self._progress_s = self._clock()
            elif self._stalled_s > self.limits.stall_s:
                self.lose(self._stalled)
                return

    @property
    def _stalled_s(self) -> float:
        return self._clock() - self._progress_s

    @property
    def _stalled(self) -> str:
        waiting = {w for e in self._on_way.values() for w in e.waiting_for}
        return (
            f"nothing has completed for {self._stalled_s:.0f} s; waiting for workers "
            f"{sorted(waiting)}{self._running(min(waiting))}"
        )

    @property
    def waits_for(self) -> str:
        """The reason why all clients wait, if they do so for long; "" otherwise."""
        if self.is_lost:
            why = f", after {self._reasons[-1]}" if self._reasons else ""
            return f"{self.size} are being started, attempt {self.attempt}{why}"
        is_long = self._on_way and self._stalled_s > self.limits.told_s
        return self._stalled if is_long else ""

    def _running(self, worker: int) -> str:
        """What a worker was running, as the end of a sentence; "" if nothing named."""
        entries = self._on_way.values()
        name = running_name(entries, self._clients.setup(), worker)
        return f", while it ran {name}" if name else ""
