"""The part of a cache that one lock protects."""

import heapq
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any

from meshwright.features.policies.cache.serving.orders import (
    CompiledOrder,
    LruOrder,
    Order,
)

_LOOK_AGAIN = 64
"""Evictions after which a crowded shard asks the others for free bytes again."""

type Entry = tuple[Any, int, float | None]
"""A stored object: its value, its bytes, and the time from which it is gone."""


class CacheShard:
    """Entries, their order, and counts of what happened; all under `lock`.

    limit: the most bytes of the entries; the cache moves it between shards.
    loading: the loads that are under way, by key.
    is_crowded: whether no other shard had bytes to spare, when it was looked at.
    """

    def __init__(
        self, policy: str, limit: int, clock: Callable[[], float], seed: int
    ) -> None:
        self.lock = threading.Lock()
        self.entries: OrderedDict[Hashable, Entry] = OrderedDict()
        self.loading: dict[Hashable, Future[Any]] = {}
        self.limit, self.used = limit, 0
        self.hits = self.misses = self.stores = self.refusals = 0
        self.replacements = self.evictions = self.expirations = self.deletions = 0
        self.loads = self.failed_loads = 0
        self.is_crowded = False
        self.order: Order = (
            LruOrder(self.entries) if policy == "lru" else CompiledOrder(policy, seed)
        )
        self.hit, self._place = self.order.hit, self.order.store
        self._clock = clock
        self._deadlines: list[tuple[float, int, Hashable]] = []
        self._serial = 0

    def read(self, key: Hashable) -> Entry | None:
        """The entry of a key, and counts the request."""
        entry = self.entries.get(key)
        if entry is None:
            self.misses += 1
            return None
        if entry[2] is not None and self._clock() >= entry[2]:
            self._expire(key)
            self.misses += 1
            return None
        self.hits += 1
        self.hit(key)
        return entry

    def write(
        self,
        key: Hashable,
        value: Any,
        size: int,
        ttl: float | None,
        tags: Sequence[float],
    ) -> bool:
        """Store an object that is no larger than the limit; whether it was stored."""
        entries = self.entries
        if self._deadlines:
            self._expire_due()
        if key in entries:
            self.remove(key)
            self.replacements += 1
        if tags:
            self.order.describe(key, tags)
        victims, is_stored = self._place(key, size, self.limit)
        for victim in victims:
            self.used -= entries.pop(victim)[1]
        self.evictions += len(victims)
        if self.evictions % _LOOK_AGAIN < len(victims):
            self.is_crowded = False
        if not is_stored:
            self.refusals += 1
            return False
        expires = None
        if ttl is not None:
            expires = self._clock() + ttl
            self._serial += 1
            heapq.heappush(self._deadlines, (expires, self._serial, key))
        entries[key] = (value, size, expires)
        self.used += size
        self.stores += 1
        return True

    def remove(self, key: Hashable) -> None:
        """Take out the entry of a key that is stored."""
        self.order.forget(key)
        self.used -= self.entries.pop(key)[1]

    def lend(self, wanted: int, may_evict: bool) -> int:
        """Lower the limit by some bytes, as many as are free or can be made free."""
        self._expire_due()
        while may_evict and self.entries and self.limit - self.used < wanted:
            self.remove(next(iter(self.entries)))
            self.evictions += 1
        lent = min(wanted, self.limit - self.used)
        self.limit -= lent
        return lent

    def _expire(self, key: Hashable) -> None:
        """Take out an entry whose time is over."""
        self.remove(key)
        self.expirations += 1

    def _expire_due(self) -> None:
        """Take out all entries whose time is over."""
        while self._deadlines and self._deadlines[0][0] <= self._clock():
            expires, _, key = heapq.heappop(self._deadlines)
            entry = self.entries.get(key)
            if entry is not None and entry[2] == expires:
                self._expire(key)
