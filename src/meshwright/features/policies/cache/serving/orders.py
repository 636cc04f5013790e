"""Orders of eviction: LRU by Python's ordered dictionary, other policies compiled."""

import itertools
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import numpy as np

from meshwright.features.policies.cache.eviction.learning.histories import tag_features
from meshwright.features.policies.cache.serving.rules import RULES, grown, in_list

_BATCH = 256
"""Hits that are reported to a compiled policy in one call, at most."""

_GHOSTS, _LEAST_GHOSTS = 4, 1024
"""Objects evicted and still known: for each one in the cache, and at least."""


type Stored = tuple[list[Hashable], bool]
"""Keys that a new one displaces, and whether the new one is to be stored."""


class Order(Protocol):
    """The order in which a shard evicts its entries; the shard's lock is held."""

    @property
    def hit(self) -> Callable[[Hashable], None]:
        """Notes a request for a key that is stored."""
        ...

    def store(self, key: Hashable, size: int, capacity: int) -> Stored:
        """Keys to evict for a new one, and whether that one is to be stored."""
        ...

    def forget(self, key: Hashable) -> None:
        """Take out a key that is stored."""
        ...

    def describe(self, key: Hashable, tags: Sequence[float]) -> None:
        """Use the tags of a key that will be stored next."""
        ...


class LruOrder:
    """Least recently used first, which is the order of the shard's entries themselves."""

    def __init__(self, entries: OrderedDict[Hashable, Any]) -> None:
        self._entries = entries
        self._used = 0
        self.hit: Callable[[Hashable], None] = entries.move_to_end

    def store(self, key: Hashable, size: int, capacity: int) -> Stored:
        """The oldest keys, until the new one fits."""
        self._used += size
        if self._used <= capacity:
            return [], True
        victims: list[Hashable] = []
        for victim in self._entries:
            victims.append(victim)
            self._used -= self._entries[victim][1]
            if self._used <= capacity:
                break
        return victims, True

    def forget(self, key: Hashable) -> None:
        """Count the bytes of a key as free."""
        self._used -= self._entries[key][1]

    def describe(self, key: Hashable, tags: Sequence[float]) -> None:
        """Nothing: LRU does not look at tags."""


class CompiledOrder:
    """A policy of the simulator, with a number for each key that it knows.

    Hits are noted in a list, and given to the policy before the next object is stored.
    Keys that were evicted are known for some time, since the policy learns from their
    return; then their numbers are used again.
    """

    def __init__(self, policy: str, seed: int) -> None:
        self._rule = RULES[policy]
        self._seed = seed
        self._keys: list[Hashable] = []
        self._numbers: dict[Hashable, int] = {}
        self._ghosts: dict[Hashable, None] = {}
        self._free: list[int] = []
        self._state = self._rule.empty(_LEAST_GHOSTS, seed)
        self._states = in_list(self._state)
        self._sizes = np.zeros(_LEAST_GHOSTS, np.int64)
        self._batch = np.zeros(_BATCH + 1, np.int64)
        self._noted: list[Hashable] = []
        self._now = 1
        self._capacity = 1

    def hit(self, key: Hashable) -> None:
        """Note a request for a key; the policy sees it later."""
        self._noted.append(key)
        if len(self._noted) == _BATCH:
            self._serve(self._known())

    def store(self, key: Hashable, size: int, capacity: int) -> Stored:
        """Ask for a new key; the policy says what goes, and whether the key stays."""
        self._capacity = capacity
        number = self._number(key)
        self._sizes[number] = size
        self._serve([*self._known(), number])
        gone, keys = self._state.queues.gone, self._keys
        victims = [keys[gone[k]] for k in range(gone[-1])]
        is_stored = 0 < self._state.queues.place[number] <= self._rule.most
        for ghost in victims if is_stored else [*victims, key]:
            self._ghosts[ghost] = None
        self._limit_ghosts()
        return victims, is_stored

    def forget(self, key: Hashable) -> None:
        """Take a key out of the policy, and use its number again."""
        self._serve(self._known())
        self._forget_all([key])

    def describe(self, key: Hashable, tags: Sequence[float]) -> None:
        """Give the tags to a policy that learns."""
        number = self._number(key)
        known = self._rule.known(self._state)
        if known is not None:
            known.tags[number] = tag_features(np.array([tags], float))[0]

    def _known(self) -> list[int]:
        """The numbers of the keys whose hits were noted, which then wait no more."""
        numbers, noted = self._numbers, self._noted
        known = [numbers[key] for key in noted if key in numbers]
        noted.clear()
        return known

    def _serve(self, numbers: list[int]) -> None:
        """Requests for keys by their numbers, at most a batch and one."""
        count = len(numbers)
        if not count:
            return
        ids = self._batch[:count]
        ids[:] = numbers
        sizes = self._sizes[ids]
        self._rule.serve(self._states, ids, sizes, count, self._capacity, self._now)
        self._now += count

    def _number(self, key: Hashable) -> int:
        """The number of a key, which is new if the key is not known."""
        number = self._numbers.get(key)
        if number is not None:
            self._ghosts.pop(key, None)
            return number
        if self._free:
            number = self._free.pop()
            self._keys[number] = key
        else:
            number = len(self._keys)
            self._keys.append(key)
            if number >= len(self._sizes):
                self._grow()
        self._numbers[key] = number
        return number

    def _grow(self) -> None:
        """Make room for twice as many objects."""
        objects = 2 * len(self._sizes)
        self._state = grown(self._state, self._rule.empty(objects, self._seed))
        self._states = in_list(self._state)
        self._sizes = np.concatenate([self._sizes, np.zeros_like(self._sizes)])

    def _limit_ghosts(self) -> None:
        """Forget the oldest ghosts if there are clearly too many, all in one call."""
        stored = len(self._numbers) - len(self._ghosts)
        limit = max(_GHOSTS * stored, _LEAST_GHOSTS)
        if len(self._ghosts) > limit + _BATCH:
            self._forget_all(list(itertools.islice(self._ghosts, _BATCH)))

    def _forget_all(self, keys: list[Hashable]) -> None:
        """Take keys out of the policy, and use their numbers again; at most a batch."""
        numbers = [self._numbers.pop(key) for key in keys]
        for key in keys:
            self._ghosts.pop(key, None)
        ids = self._batch[: len(keys)]
        ids[:] = numbers
        self._rule.forget(self._states, ids, len(keys))
        self._free += numbers
