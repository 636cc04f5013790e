"""The cache that serves: misses of the simulator, threads under faults, loads, refusals."""

import asyncio
import contextlib
import random
import threading
import time

import pytest

from meshwright.errors import PolicyError
from meshwright.policies import SERVING, Cache, simulate, trace, video_trace
from tests.features.policies.cache import traces


@pytest.mark.parametrize("policy", SERVING)
def test_with_one_shard_the_misses_are_those_of_the_simulator(policy: str) -> None:
    requests = traces.zipf(6_000, 900)  # few enough objects to remember all ghosts
    capacity = 150_000
    cache = Cache[int, int](capacity, policy, shards=1)
    for each, size in zip(requests.ids.tolist(), requests.sizes.tolist(), strict=True):
        if cache.get(each) is None:
            cache.put(each, each + 1, size)
        assert cache.metrics.bytes <= capacity
    assert cache.metrics.misses == simulate(requests, capacity, policy).misses


@pytest.mark.parametrize("policy", ["halp", "foresight"])
def test_tags_count_as_in_the_simulator(policy: str) -> None:
    requests = video_trace(4_000, 20, 0)
    capacity = requests.working_set // 4
    cache = Cache[int, int](capacity, policy, shards=1)
    columns = requests.ids.tolist(), requests.sizes.tolist(), requests.tags.tolist()
    for each, size, tags in zip(*columns, strict=True):
        if cache.get(each) is None:
            cache.put(each, 0, size, tags=tags)
    assert cache.metrics.misses == simulate(requests, capacity, policy).misses


def test_halp_learns_from_tags() -> None:
    requests = video_trace(4_000, 20, 0)
    untagged = trace(requests.ids, requests.sizes)
    capacity = requests.working_set // 4
    tagged = simulate(requests, capacity, "halp")
    assert simulate(untagged, capacity, "halp") != tagged


class Faults:
    """A clock that jumps, and a loader that raises; both from one seed."""

    def __init__(self, seed: int) -> None:
        self.draws = random.Random(seed)
        self.ahead = 0.0
        self.versions: dict[int, int] = {}

    def clock(self) -> float:
        if self.draws.random() < 1e-3:
            self.ahead += self.draws.uniform(-5, 5)
        return time.monotonic() * 100 + self.ahead

    def load(self, key: int) -> tuple[int, int]:
        if self.draws.random() < 0.1:
            raise OSError("the disk failed")
        return key, self.versions.get(key, 0)


def work(
    cache: Cache[int, tuple[int, int]], faults: Faults, thread: int, rounds: int
) -> None:
    """Reads, loads, updates and deletions; each key is updated by one thread only."""
    draws = random.Random(thread)
    for _ in range(rounds):
        key = min(int(draws.paretovariate(0.6)), 2_000)
        what = draws.random()
        if what < 0.6:
            value = cache.get(key)
            assert value is None or value[0] == key
        elif what < 0.8:
            with contextlib.suppress(OSError):
                assert cache.load(key, faults.load, 1 + key % 50, ttl=0.1)[0] == key
        elif what < 0.82:
            cache.delete(key)
        else:
            own = key - key % 8 + thread
            version = faults.versions.get(own, 0) + 1
            faults.versions[own] = version
            cache.put(own, (own, version), 1 + own % 50, ttl=draws.choice((None, 0.1)))
            value = cache.get(own)
            assert value is None or value == (own, version)  # no update is lost


@pytest.mark.parametrize("policy", ["lru", "halp", "foresight"])
def test_eight_threads_under_faults(policy: str) -> None:
    faults = Faults(0)
    cache = Cache[int, tuple[int, int]](1_000, policy, clock=faults.clock)
    failed: list[BaseException] = []

    def run(thread: int) -> None:
        try:
            work(cache, faults, thread, 1_500)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=run, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert cache.metrics.bytes <= cache.capacity
        time.sleep(0.005)
    assert not failed
    figures = cache.metrics
    left = figures.evictions + figures.expirations + figures.deletions
    assert figures.stores == figures.objects + figures.replacements + left
    assert figures.objects == len(cache)
    assert figures.expirations
    assert figures.failed_loads
    assert figures.evictions


def test_a_key_is_loaded_once_for_all_who_wait() -> None:
    cache = Cache[str, int](100)
    calls: list[str] = []
    started = threading.Barrier(8)

    def slow(key: str) -> int:
        calls.append(key)
        time.sleep(0.05)
        return len(calls)

    values: list[int] = []

    def ask() -> None:
        started.wait()
        values.append(cache.load("a", slow, 10))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == ["a"]
    assert values == [1] * 8
    assert cache.metrics.loads == 1


def test_tasks_share_a_load_and_survive_a_cancelled_one() -> None:
    async def main() -> None:
        cache = Cache[str, int](100)
        calls: list[str] = []

        async def slow(key: str) -> int:
            calls.append(key)
            await asyncio.sleep(0.02)
            return len(calls)

        first = asyncio.create_task(cache.load_async("a", slow, 10))
        await asyncio.sleep(0)
        rest = [asyncio.create_task(cache.load_async("a", slow, 10)) for _ in range(3)]
        await asyncio.sleep(0)
        rest[0].cancel()  # one who waits takes nothing from the others
        first.cancel()
        assert await asyncio.gather(*rest[1:]) == [2, 2]
        assert calls == ["a", "a"]
        assert cache.get("a") == 2

    asyncio.run(main())


def test_a_load_does_not_overwrite_a_newer_value() -> None:
    cache = Cache[str, str](100)

    def overtaken(key: str) -> str:
        cache.put(key, "new", 1)
        return "old"

    assert cache.load("a", overtaken, 1) == "old"
    assert cache.get("a") == "new"


def test_a_crowded_shard_takes_the_bytes_that_others_free() -> None:
    cache = Cache[int, int](100, shards=4)
    for key in range(200):
        cache.put(key, key, 1)
    for key in range(200):
        if key % 4:
            cache.delete(key)
    for key in range(0, 1000, 4):
        cache.put(key, key, 1)
    assert cache.metrics.bytes == 100


@pytest.mark.parametrize("other", [1, 4], ids=["another shard", "the same shard"])
def test_objects_expire_and_fit_up_to_the_capacity(other: int) -> None:
    now = [0.0]
    cache = Cache[int, int](100, shards=4, clock=lambda: now[0])
    assert cache.put(0, 1, 60, ttl=10)
    assert cache.put(other, 2, 40)
    assert (cache.get(0), cache.get(other)) == (1, 2)
    now[0] = 10
    assert cache.get(0) is None
    assert cache.put(2, 3, 100)  # evicts the other from whichever shard has it
    assert cache.metrics.bytes == 100
    assert not cache.put(3, 4, 101)
    assert cache.metrics.refusals == 1


def test_what_a_cache_refuses() -> None:
    with pytest.raises(PolicyError, match="did you mean 'lru'"):
        Cache(10, "lruu")
    with pytest.raises(PolicyError, match="0 bytes"):
        Cache(0)
    cache = Cache[str, int](10)
    with pytest.raises(PolicyError, match="size of 'a' is 0"):
        cache.put("a", 1, 0)
    with pytest.raises(PolicyError, match="ttl of 'a' is -1"):
        cache.put("a", 1, 1, ttl=-1)
