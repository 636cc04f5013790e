"""Cost of dispatch on a cluster: messages and time to reach many workers, without devices.

Workers only answer, each after a delay of the network, in one process. A call is sent by
the controller's own island to workers that hand it on, eight each, as Ray's actors do;
messages, their bytes, and answers with completions are counted. `cpu_ms` is the processor
time of a call in this process, which is controller and all workers.

    python -m benchmarks cluster cluster_dispatch [--workers 4,64,512,4096] [--delay-ms 0.1]
"""

from __future__ import annotations

import asyncio
import json
import pickle
import statistics
import time

from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.features.cluster.controller.controller import Controller
from meshwright.features.cluster.controller.gang import GangSize
from meshwright.features.cluster.controller.limits import IslandLimits
from meshwright.features.cluster.controller.tenants import Tenant
from meshwright.features.cluster.engines.ray_engine import WIDTH
from meshwright.features.cluster.wire.messages import Call, Completion, Define, Put


class EchoGang:
    """Workers that complete what they get, and hand it on to the workers below them.

    arrived: for each instruction, how many workers have it, and when the last got it.
    """

    platform = "cpu"

    def __init__(self, workers, delay_s):
        self.attempt, self.num_workers = 1, workers
        self.processes = tuple(range(workers))
        self.places = ("simulated",) * workers
        self.delay_s = delay_s
        self.messages = self.num_bytes = self.answers = 0
        self.received = [0] * workers
        self.arrived, self.last_s = {}, {}
        self.changed = asyncio.Condition()

    def send(self, instructions):
        text = pickle.dumps(list(instructions))
        for worker in range(min(WIDTH, self.num_workers)):
            self._deliver(worker, text)

    def _deliver(self, worker, text):
        self.messages += 1
        self.num_bytes += len(text)
        loop = asyncio.get_running_loop()
        loop.call_later(self.delay_s, self._receive, worker, text)

    def _receive(self, worker, text):
        first = WIDTH * (worker + 1)
        for child in range(first, min(first + WIDTH, self.num_workers)):
            self._deliver(child, text)
        for each in pickle.loads(text):
            self.received[worker] = each.number
            self.arrived[each.number] = self.arrived.get(each.number, 0) + 1
            self.last_s[each.number] = time.perf_counter()

    async def completions(self, worker, after):
        if self.received[worker] <= after:
            await asyncio.sleep(0.25)
        last = self.received[worker]
        self.answers += last > after
        return [Completion(n, 0.0, "") for n in range(after + 1, last + 1)]

    async def fetch(self, worker, array):
        raise NotImplementedError

    async def stop(self):
        pass


class EchoEngine:
    def __init__(self, delay_s):
        self.delay_s, self.gang = delay_s, None

    async def start(self, size, attempt):
        self.gang = EchoGang(size.workers, self.delay_s)
        return self.gang


async def measured(workers, delay_s, calls):
    """Figures of one number of workers."""
    engine = EchoEngine(delay_s)
    limits = IslandLimits(depth=10**6)
    tenant = Tenant("a", "token")
    controller = Controller(engine, GangSize(workers, 1), [tenant], limits=limits)
    await controller.start()
    session = await controller.open("token")
    _, devices, _ = await controller.slice(session, workers)
    define = Define(0, b"", devices, (), (8,), (8, 8), ())
    await controller.submit(session, 0, [define, Put(0, None, 8)])
    await asyncio.sleep(0.5)
    gang, before_s, times = engine.gang, [], []
    messages, num_bytes, answers = gang.messages, gang.num_bytes, gang.answers
    cpu_s = time.process_time()
    for turn in range(1, calls + 1):
        number = 2 * turn
        before_s.append(time.perf_counter())
        call = Call(0, (number - 2 if turn > 1 else 0,), (number, number + 1))
        await controller.submit(session, turn, [call])
        while gang.arrived.get(turn + 2, 0) < workers:
            await asyncio.sleep(0)
        times.append(gang.last_s[turn + 2] - before_s[-1])
    cpu_s = time.process_time() - cpu_s
    found = {
        "workers": workers,
        "messages_per_call": (gang.messages - messages) / calls,
        "bytes_per_message": (gang.num_bytes - num_bytes) / (gang.messages - messages),
        "answers_per_call": (gang.answers - answers) / calls,
        "cpu_ms": 1e3 * cpu_s / calls,
        "median_ms": 1e3 * statistics.median(times),
        "worst_ms": 1e3 * max(times),
    }
    await controller.stop()
    return found


@benchmark(
    option("--workers", default="4,16,64,256,512,1024,4096"),
    option("--delay-ms", type=float, default=0.1),
    option("--calls", type=int, default=40),
    out=STORED,
)
def main(options: Options):
    rows = []
    for workers in map(int, options.workers.split(",")):
        rows.append(
            asyncio.run(measured(workers, options.delay_ms / 1e3, options.calls))
        )
        print(json.dumps(rows[-1]), flush=True)
        options.save(rows)


if __name__ == "__main__":
    main()
