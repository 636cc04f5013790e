"""Workers without devices, which complete what they are sent."""

import asyncio

from meshwright.run.cluster.wire.messages import ArrayPart, Completion, Fetched


class FakeGang:
    """A gang whose workers complete each instruction at once, and keep what they got.

    silent: workers that answer nothing. stuck: whether nothing completes.
    seconds: time that each instruction is said to have taken, by its session.
    """

    platform = "cpu"

    def __init__(self, attempt, workers, devices):
        self.attempt = attempt
        self.processes = tuple(w for w in range(workers) for _ in range(devices))
        self.num_workers = workers
        self.places = tuple(f"fake:{w}" for w in range(workers))
        self.received = []
        self.silent, self.dead, self.stuck = set(), set(), False
        self.seconds = {}
        self.is_stopped = False

    def send(self, instructions):
        self.received += instructions

    async def completions(self, worker, after):
        while True:
            if worker in self.dead:
                raise ConnectionError("gone")
            found = [i for i in self.received if i.number > after]
            if worker not in self.silent and not self.stuck:
                if found:
                    took = [self.seconds.get(i.session, 1e-4) for i in found]
                    pairs = zip(found, took, strict=True)
                    return [Completion(i.number, s, "") for i, s in pairs]
                await asyncio.sleep(0.002)
                return []
            await asyncio.sleep(0.002)

    async def fetch(self, worker, array):
        return Fetched((), (ArrayPart((), array.number),))

    async def stop(self):
        self.is_stopped = True


class FakeEngine:
    """Starts fake gangs, and keeps all of them."""

    def __init__(self):
        self.gangs = []

    async def start(self, size, attempt):
        self.gangs.append(FakeGang(attempt, size.workers, size.devices))
        return self.gangs[-1]
