"""Several tenants on one cluster of 4 processes of 2 devices: shares, and no deadlock.

shares: two tenants of weights 2 and 1, whose steps take different times, are kept busy;
the first should get two thirds of the time. mixed: four clients run small programs of
all kinds at once, on slices that overlap; all results must be exact. unordered: two
clients send the same kind of programs to the workers themselves, one of them to the last
worker first, as without a controller; it counts what comes back in 30 s.

    python -m benchmarks cluster cluster_tenants [--seconds 30] [--programs 10000]
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np

import meshwright as mw
from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.errors import ClusterError
from meshwright.features.cluster.client import Cluster
from meshwright.features.cluster.controller.gang import GangSize
from meshwright.features.cluster.controller.tenants import Tenant
from meshwright.features.cluster.engines.ray_engine import RayEngine
from meshwright.features.cluster.wire.messages import ArrayKey, Call, WorkerInstruction

WHERE, ALL = "local:4x2", {"data": 8}
TENANTS = (Tenant("a", "a", weight=2.0, queue=64), Tenant("b", "b", queue=64))


def together(*functions):
    """The results of functions that run at once in threads."""
    with ThreadPoolExecutor(len(functions)) as pool:
        return [each.result() for each in [pool.submit(f) for f in functions]]


def shares(seconds):
    """Shares of the time of two busy tenants of weights 2 and 1."""

    def step(loops):
        def run(x):
            x = jax.lax.fori_loop(0, loops, lambda _, x: jnp.tanh(x @ x), x)
            return x + 1e-6 * x.mean()

        return run

    ready, until = threading.Barrier(3), threading.Event()

    def busy(client, loops):
        part = client.slice(ALL)
        run = mw.partition(step(loops), part, [mw.data_parallel("data", "x")])
        x = run(part.put(np.ones((8, 64, 64), np.float32)))
        x.result()
        ready.wait()
        while not until.is_set():
            x = run(x)
        x.result()

    with mw.cluster(WHERE, token="a", tenants=TENANTS) as a:
        b, found = mw.cluster(WHERE, token="b"), []

        def watch():
            ready.wait()  # both have compiled; that was charged, too, and evens out
            end, used = time.monotonic() + 60, a.status().used_s
            while abs(used["a"] - used["b"]) > 0.1 and time.monotonic() < end:
                time.sleep(0.2)
                used = a.status().used_s
            found.append(used)
            time.sleep(seconds)
            found.append(a.status().used_s)
            until.set()

        together(lambda: busy(a, 160), lambda: busy(b, 400), watch)
        used = {t: found[1][t] - found[0][t] for t in found[0]}
        times = {tenant.name: used[tenant.name] * tenant.weight for tenant in TENANTS}
        b.close()
    share = times["a"] / sum(times.values())
    return {"seconds": times, "wanted": 2 / 3, "share": share}


def mixed(programs):
    """Small programs of four clients at once, with collectives and without."""
    kinds = (
        lambda x: x + 1,
        lambda x: jnp.maximum(x, x.max()) + 1,
        lambda x: x - x.sum() + x.sum() + 1,
    )

    def client(cluster, sizes):
        part = cluster.slice(sizes)
        tactics = [mw.data_parallel("data", "x")]
        steps = [mw.partition(kind, part, tactics) for kind in kinds]
        x = part.put(np.zeros(8, np.float32))
        for turn in range(programs // 4):
            x = steps[turn % len(steps)](x)
        return float(np.asarray(x).min()), float(np.asarray(x).max())

    with mw.cluster(WHERE, token="a", tenants=TENANTS) as first:
        others = [mw.cluster(WHERE, token=t) for t in "bab"]
        meshes = ALL, {"data": 4}, ALL, {"data": 2}
        start = time.perf_counter()
        pairs = zip([first, *others], meshes, strict=True)
        found = together(*[lambda c=c, m=m: client(c, m) for c, m in pairs])
        took_s = time.perf_counter() - start
        attempts = first.status().attempt
        for each in others:
            each.close()
    wanted = programs // 4
    return {
        "programs": programs,
        "exact": sum(low == high == wanted for low, high in found),
        "clients": len(found),
        "gangs": attempts,
        "seconds": took_s,
        "programs_per_s": programs / took_s,
    }


class Unordered:
    """A connection that hands requests to the workers itself, in an order of its own.

    half: called when half of the workers have a call, to let the other client go first
        at the other half, as a network may.
    """

    def __init__(self, name, actors):
        self.name, self.actors, self.number = name, actors, 0
        self.half = lambda: None

    def call(self, method, *arguments):
        future = Future()
        if method == "fetch_all":
            (number,) = arguments[2]
            key = ArrayKey(self.name, number)
            asked = [[actor.fetch.remote(key)] for actor in self.actors]
            future.set_result([asked])
            return future
        answers = {"open": self.name, "slice": (1, tuple(range(8)), "cpu")}
        if method == "submit":
            for request in arguments[2]:
                self.number += 1
                sent = WorkerInstruction(self.number, self.name, request)
                for position, actor in enumerate(self.actors):
                    if isinstance(request, Call) and 2 * position == len(self.actors):
                        self.half()
                    actor.execute.remote([sent])
        future.set_result(answers.get(method))
        return future

    def store(self, value):
        return value

    def load(self, value):
        import ray

        return ray.get(value[0], timeout=30)

    def close(self):
        pass


def awaited(handle, end):
    """A result, once the workers have come to the program that makes it."""
    while True:
        try:
            return handle.result()
        except ClusterError:  # no worker has started it
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def unordered(programs):
    """Programs of two clients without one order for all workers."""
    import ray

    ray.init(_node_ip_address="127.0.0.1", include_dashboard=False, log_to_driver=False)

    async def start():
        return await RayEngine("cpu", {"num_cpus": 0}).start(GangSize(4, 2), 1)

    gang = asyncio.run(start())
    actors, in_turn, ready = gang._actors, threading.Lock(), threading.Barrier(2)

    def client(name, order, width):
        connection = Unordered(name, order)
        part = Cluster(connection, "").slice(ALL)
        step = mw.partition(
            lambda x: jnp.maximum(x, x.max()) + 1, part, [mw.data_parallel("data", "x")]
        )
        with in_turn:  # one after the other, the first calls are in one order
            x = step(part.put(np.zeros((8, width), np.float32)))
            awaited(x, time.monotonic() + 60)
        ready.wait()
        connection.half = ready.wait
        handles = [x]
        for _ in range(programs // 2 - 1):
            x = step(x)
            handles.append(x)
        done, end = 0, time.monotonic() + 30
        for turn, handle in enumerate(handles):
            if time.monotonic() > end:
                break
            try:
                done += bool((awaited(handle, end) == turn + 1).all())
            except Exception as error:  # noqa: BLE001  whatever it is, it is counted
                return done, f"{type(error).__name__}: {error!s:.120}"
        return done, ""

    try:
        found = together(
            lambda: client("a", actors, 4), lambda: client("b", actors[::-1], 4000)
        )
    finally:
        for actor in actors:
            ray.kill(actor)
        ray.shutdown()
    errors = [error for _, error in found]
    return {"programs": programs, "right": sum(n for n, _ in found), "errors": errors}


@benchmark(
    option("--seconds", type=float, default=30),
    option("--programs", type=int, default=10_000),
    option("--unordered-programs", type=int, default=400),
    option("--only", choices=("shares", "mixed", "unordered")),
    out=STORED,
)
def main(options: Options):
    parts = {
        "shares": lambda: shares(options.seconds),
        "mixed": lambda: mixed(options.programs),
        "unordered": lambda: unordered(options.unordered_programs),
    }
    known = options.stored({})
    for name in [options.only] if options.only else parts:
        known[name] = {**parts[name](), "load": os.getloadavg()[0]}
        print(name, json.dumps(known[name]), flush=True)
        options.save(known)


if __name__ == "__main__":
    main()
