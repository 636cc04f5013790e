"""A cache for the objects of a process, safe for threads and for asyncio."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any

from meshwright.errors import PolicyError, did_you_mean
from meshwright.features.policies.cache.serving.metrics import COUNTS, CacheMetrics
from meshwright.features.policies.cache.serving.rules import RULES
from meshwright.features.policies.cache.serving.shard import CacheShard

SERVING = ("lru", *RULES)
"""The policies that a cache can run."""

type _Size[V] = int | Callable[[V], int]


class _AbandonedError(Exception):
    """A load was cancelled; those who wait for it load themselves."""


class Cache[K: Hashable, V]:
    """Objects by key, of at most `bytes` together; a policy says what is evicted.

    Keys are spread over shards, each with a lock and an order of its own, so that threads
    seldom wait for each other. Bytes that a shard does not use go to those that need them,
    so that every object up to the capacity can be stored. With `shards=1`, the misses are
    those that `simulate` finds.

    policy: one of `SERVING`.
    clock: seconds, for times to live.
    seed: of the first weights of policies that learn.
    """

    def __init__(
        self,
        bytes: int,
        policy: str = "lru",
        *,
        shards: int = 4,
        clock: Callable[[], float] = time.monotonic,
        seed: int = 0,
    ) -> None:
        if policy not in SERVING:
            near = did_you_mean(policy, SERVING)
            raise PolicyError(
                f"a cache has no policy {policy!r}{near}; there are {', '.join(SERVING)}"
            )
        if bytes < 1 or shards < 1:
            raise PolicyError(
                f"a cache of {bytes} bytes in {shards} shards; wanted 1 or more of both"
            )
        self.capacity = int(bytes)
        limits = [self.capacity // shards] * shards
        limits[0] += self.capacity % shards
        self._shards = tuple(CacheShard(policy, limit, clock, seed) for limit in limits)
        self._number = shards

    def get(self, key: K, default: V | None = None) -> V | None:
        """The value of a key, or `default` if the cache does not have it."""
        shard = self._shards[hash(key) % self._number]
        with shard.lock:
            entry = shard.entries.get(key)
            if entry is None or entry[2] is not None:
                entry = shard.read(key)
            else:
                shard.hits += 1
                shard.hit(key)
        return default if entry is None else entry[0]

    def put(
        self,
        key: K,
        value: V,
        size: int,
        ttl: float | None = None,
        tags: Sequence[float] = (),
    ) -> bool:
        """Store an object of `size` bytes, for `ttl` seconds; whether it was stored.

        An object that is larger than the cache, or that the policy does not want, is not
        stored; the old value of its key is gone in any case.

        tags: numbers that tell a learning policy something about the object; it looks at
            two, by their magnitude.
        """
        if type(size) is not int or size < 1 or ttl is not None:
            _check(key, size, ttl)
        shard = self._shards[hash(key) % self._number]
        with shard.lock:
            if shard.loading:
                shard.loading.pop(key, None)
            limit = shard.limit
            if size <= limit and (shard.is_crowded or shard.used + size <= limit):
                return shard.write(key, value, size, ttl, tags)
        return self._store(shard, key, value, size, ttl, tags)

    def delete(self, key: K) -> bool:
        """Take out a key; whether the cache had it."""
        shard = self._shards[hash(key) % self._number]
        with shard.lock:
            shard.loading.pop(key, None)
            if key not in shard.entries:
                return False
            shard.remove(key)
            shard.deletions += 1
            return True

    def load(
        self,
        key: K,
        loader: Callable[[K], V],
        size: _Size[V],
        ttl: float | None = None,
    ) -> V:
        """The value of a key, from the loader if the cache does not have it.

        While a thread or a task loads a key, others that want it wait for the same load.
        What the loader raises, they raise as well, and nothing is stored.

        size: bytes of the object, or a function of its value.
        """
        while True:
            value, future, is_ours = self._begin(key)
            if future is None:
                return value
            if not is_ours:
                with contextlib.suppress(_AbandonedError):
                    return future.result()
                continue
            try:
                value = loader(key)
                self._finish(key, future, value, size, ttl)
            except BaseException as error:
                self._fail(key, future, error)
                raise
            return value

    async def load_async(
        self,
        key: K,
        loader: Callable[[K], Awaitable[V]],
        size: _Size[V],
        ttl: float | None = None,
    ) -> V:
        """`load` for tasks, with an asynchronous loader."""
        while True:
            value, future, is_ours = self._begin(key)
            if future is None:
                return value
            if not is_ours:
                with contextlib.suppress(_AbandonedError):
                    return await asyncio.wrap_future(future)
                continue
            try:
                value = await loader(key)
                self._finish(key, future, value, size, ttl)
            except BaseException as error:
                self._fail(key, future, error)
                raise
            return value

    @property
    def metrics(self) -> CacheMetrics:
        """What the cache has done and has, at one moment: all shards are locked for it."""
        totals = dict.fromkeys((*COUNTS, "objects", "bytes"), 0)
        with contextlib.ExitStack() as locks:
            for shard in self._shards:
                locks.enter_context(shard.lock)
            for shard in self._shards:
                for name in COUNTS:
                    totals[name] += getattr(shard, name)
                totals["objects"] += len(shard.entries)
                totals["bytes"] += shard.used
        return CacheMetrics(**totals, capacity=self.capacity)

    def __len__(self) -> int:
        return sum(len(shard.entries) for shard in self._shards)

    def __contains__(self, key: K) -> bool:
        return key in self._shards[hash(key) % self._number].entries

    def _store(  # noqa: PLR0913  an object, and the load that brought it
        self,
        shard: CacheShard,
        key: K,
        value: V,
        size: int,
        ttl: float | None,
        tags: Sequence[float],
        future: Future[Any] | None = None,
    ) -> bool:
        """Store an object; that of a load only if nobody stored or deleted it since."""
        while True:
            with shard.lock:
                if future is not None and shard.loading.get(key) is not future:
                    return False
                if size > self.capacity:
                    shard.refusals += 1
                    if key in shard.entries:
                        shard.remove(key)
                        shard.replacements += 1
                    return False
                free = shard.limit - shard.used
                others = size > free and self._free_elsewhere(shard, size - free)
                shard.is_crowded = size > free and not others
                if size <= shard.limit and not others:
                    return shard.write(key, value, size, ttl, tags)
                wanted = size - (free if others else shard.limit)
            self._borrow(shard, wanted, may_evict=not others)

    def _free_elsewhere(self, shard: CacheShard, wanted: int) -> bool:
        """Whether the other shards seem to have so many bytes free."""
        free = sum(each.limit - each.used for each in self._shards if each is not shard)
        return free >= wanted

    def _borrow(self, shard: CacheShard, wanted: int, *, may_evict: bool) -> None:
        """Move bytes of other shards' limits to one shard, one lock after another."""
        for other in self._shards:
            if wanted <= 0:
                return
            if other is shard:
                continue
            with other.lock:
                lent = other.lend(wanted, may_evict)
            with shard.lock:
                shard.limit += lent
            wanted -= lent

    def _begin(self, key: K) -> tuple[Any, Future[Any] | None, bool]:
        """The value of a key; or the load of it, and whether the caller has to do it."""
        shard = self._shards[hash(key) % self._number]
        with shard.lock:
            entry = shard.read(key)
            if entry is not None:
                return entry[0], None, False
            future = shard.loading.get(key)
            if future is not None:
                return None, future, False
            future = Future[Any]()
            future.set_running_or_notify_cancel()
            shard.loading[key] = future
            return None, future, True

    def _finish(
        self, key: K, future: Future[Any], value: V, size: _Size[V], ttl: float | None
    ) -> None:
        """Store what was loaded, and give it to all who wait."""
        num_bytes = size(value) if callable(size) else size
        _check(key, num_bytes, ttl)
        shard = self._shards[hash(key) % self._number]
        self._store(shard, key, value, num_bytes, ttl, (), future)
        self._end(shard, key, future)
        future.set_result(value)

    def _fail(self, key: K, future: Future[Any], error: BaseException) -> None:
        """Tell all who wait that the load failed."""
        shard = self._shards[hash(key) % self._number]
        self._end(shard, key, future)
        with shard.lock:
            shard.failed_loads += 1
        is_real = isinstance(error, Exception)
        future.set_exception(error if is_real else _AbandonedError())

    def _end(self, shard: CacheShard, key: K, future: Future[Any]) -> None:
        """Note the end of a load."""
        with shard.lock:
            shard.loads += 1
            if shard.loading.get(key) is future:
                del shard.loading[key]


def _check(key: Hashable, size: int, ttl: float | None) -> None:
    """Refuse sizes and times to live that mean nothing."""
    if size < 1 or size != int(size):
        raise PolicyError(f"the size of {key!r} is {size}; wanted bytes, 1 or more")
    if ttl is not None and not ttl > 0:
        raise PolicyError(
            f"the ttl of {key!r} is {ttl}; wanted seconds above 0, or None"
        )
