"""Workers without devices, which complete what they are sent."""

import asyncio

from meshwright.features.cluster.wire.messages import Completion
from meshwright.features.cluster.worker.boxes import BoxData


class FakeGang:
    """A gang whose workers complete each instruction at once, and keep what they got.

    silent: workers that answer nothing in time. stuck: whether nothing completes.
    seconds: time that each instruction is said to have taken, by its session.
    errors: with which each instruction ends on a worker. deaf: whether `send` raises.
    skipped: numbers of instructions that no worker completes. unreadable: the error with
    which an array cannot be fetched, by its number.
    """

    platform = "cpu"

    def __init__(self, attempt, workers, devices):
        self.attempt = attempt
        self.processes = tuple(w for w in range(workers) for _ in range(devices))
        self.num_workers = workers
        self.places = tuple(f"fake:{w}" for w in range(workers))
        self.received = []
        self.silent, self.dead, self.stuck = set(), set(), False
        self.seconds, self.errors, self.unreadable = {}, {}, {}
        self.skipped, self.fetched_from = set(), []
        self.deaf = self.immortal = self.is_stopped = False

    def send(self, instructions):
        if self.deaf:
            raise TypeError("cannot be sent")
        self.received += instructions

    async def completions(self, worker, after):
        await asyncio.sleep(0.002)
        if worker in self.dead:
            raise ConnectionError("gone")
        if worker in self.silent:
            raise TimeoutError
        if self.stuck:
            return []
        error = self.errors.get(worker, "")
        return [
            Completion(i.number, self.seconds.get(i.session, 1e-4), error)
            for i in self.received
            if i.number > after and i.number not in self.skipped
        ]

    async def fetch(self, worker, array):
        self.fetched_from.append(worker)
        if array.number in self.unreadable:
            raise self.unreadable[array.number]
        return (BoxData((), array.number),)

    async def stop(self):
        self.is_stopped = True
        if self.immortal:
            raise OSError("cannot be ended")


class FakeEngine:
    """Starts fake gangs, and keeps all of them.

    failures: errors with which the next ones do not start. gate: when set, gangs start;
    `None` if they always do.
    """

    def __init__(self):
        self.gangs = []
        self.failures = []
        self.gate = None
        self.num_starts = 0

    async def start(self, size, attempt):
        self.num_starts += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.gangs.append(FakeGang(attempt, size.workers, size.devices))
        return self.gangs[-1]

    def require_possible(self, size):
        """Refuse nothing."""
