"""Requests a second of `policies.Cache`, beside cachetools' LRUCache under one lock.

    python -m benchmarks policies cache_serving TRACE [--form int32-big] [--share 10]

Needs `cachetools`. Each request is a `get`, and a `put` after a miss. All caches have the
same bytes; rounds alternate between the caches, with 1 thread and with 8, and the medians
of nanoseconds for each request and their quotients count.
"""

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.policies import SERVING, Cache, read_trace

type _Work = Callable[[Sequence[int]], None]

_ROUNDS = 5


def _ours(capacity: int, policy: str) -> _Work:
    """Requests to a cache of ours that is new."""
    cache = Cache[int, int](capacity, policy)

    def work(keys: Sequence[int]) -> None:
        get, put = cache.get, cache.put
        for key in keys:
            if get(key) is None:
                put(key, key + 1, 1)

    return work


def _theirs(capacity: int) -> _Work:
    """Requests to a new cache of cachetools', under one lock."""
    from cachetools import LRUCache  # pyright: ignore[reportMissingImports]

    cache: Any = LRUCache(capacity)
    lock = threading.Lock()

    def work(keys: Sequence[int]) -> None:
        for key in keys:
            with lock:
                value = cache.get(key)
            if value is None:
                with lock:
                    cache[key] = key + 1

    return work


def nanoseconds(work: _Work, keys: Sequence[int], threads: int) -> tuple[float, float]:
    """CPU and wall nanoseconds for each request, spread over threads."""
    parts = [keys[k::threads] for k in range(threads)]
    workers = [threading.Thread(target=work, args=(part,)) for part in parts]
    before, began = time.process_time(), time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    wall = time.perf_counter() - began
    return (time.process_time() - before) / len(keys) * 1e9, wall / len(keys) * 1e9


@benchmark(
    option("trace", type=Path),
    option("--form", default="text"),
    option("--share", type=float, default=10, help="of the working set, in percent"),
    out=STORED,
)
def main(chosen: Options) -> None:
    """Measure side by side, and store the figures."""
    requests = read_trace(chosen.trace, form=chosen.form, changed="separate")
    keys: list[int] = requests.ids.tolist()
    capacity = max(1, int(chosen.share / 100 * requests.objects))
    figures: dict[str, dict[str, float]] = {}
    makers: dict[str, Callable[[], _Work]] = {
        "cachetools": lambda: _theirs(capacity),
        **{name: lambda name=name: _ours(capacity, name) for name in SERVING},
    }
    for make in makers.values():
        nanoseconds(make(), keys, 1)  # compiles
    for threads in (1, 8):
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in makers}
        for _ in range(_ROUNDS):
            for name, make in makers.items():
                times[name].append(nanoseconds(make(), keys, threads))
        for kind, place in (("cpu", 0), ("wall", 1)):
            base = statistics.median(each[place] for each in times["cachetools"])
            for name, spent in times.items():
                median = statistics.median(each[place] for each in spent)
                row = figures.setdefault(f"{name}, {threads} threads", {})
                row[f"{kind}_ns"] = round(median)
                row[f"{kind}_speed_over_cachetools"] = round(base / median, 2)
    for name, row in figures.items():
        print(name, row)
    chosen.save(figures)


if __name__ == "__main__":
    main()
