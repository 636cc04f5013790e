"""Misses of eviction policies on a trace."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from meshwright.errors import PolicyError, did_you_mean
from meshwright.features.policies.cache.eviction import one_queue as queue
from meshwright.features.policies.cache.eviction import ranked
from meshwright.features.policies.cache.eviction.arc import arc
from meshwright.features.policies.cache.eviction.foresight import foresight
from meshwright.features.policies.cache.eviction.halp import halp
from meshwright.features.policies.cache.eviction.learning.histories import tag_features
from meshwright.features.policies.cache.eviction.lhd import lhd
from meshwright.features.policies.cache.eviction.lrb import LRB, THREE_L, lrb
from meshwright.features.policies.cache.eviction.probation import s3fifo, two_queues
from meshwright.features.policies.cache.eviction.tinylfu import tinylfu
from meshwright.features.policies.cache.trace import Trace

type _Rule = Callable[[Trace, int, np.ndarray, int], None]
"""A function of a trace, the bytes of the cache, the hits to fill in, and a seed."""


def _one_queue(rule: int) -> _Rule:
    """A rule that keeps all objects in one queue."""
    return lambda trace, capacity, hits, _seed: queue.one_queue(
        trace.ids, trace.sizes, capacity, hits, rule
    )


def _ranked(rule: int) -> _Rule:
    """A rule that evicts the object of least rank."""
    nothing = np.zeros(0, np.int64)
    return lambda trace, capacity, hits, _seed: ranked.ranked(
        trace.ids,
        trace.sizes,
        trace.following() if rule == ranked.BELADY else nothing,
        capacity,
        hits,
        rule,
    )


def _sized(rule: Callable[[np.ndarray, np.ndarray, int, np.ndarray], None]) -> _Rule:
    """A rule that looks at objects and sizes alone."""
    return lambda trace, capacity, hits, _seed: rule(
        trace.ids, trace.sizes, capacity, hits
    )


def _seeded(
    rule: Callable[[np.ndarray, np.ndarray, int, np.ndarray, int], None],
) -> _Rule:
    """A rule that also draws at random."""
    return lambda trace, capacity, hits, seed: rule(
        trace.ids, trace.sizes, capacity, hits, seed
    )


def _tagged(
    rule: Callable[[np.ndarray, np.ndarray, np.ndarray, int, np.ndarray, int], None],
) -> _Rule:
    """A rule that draws at random, and learns from tags."""
    return lambda trace, capacity, hits, seed: rule(
        trace.ids, trace.sizes, tag_features(trace.tags), capacity, hits, seed
    )


def _trees(rule: int) -> _Rule:
    """A rule that expects next requests by boosted trees alone."""
    return lambda trace, capacity, hits, seed: lrb(
        trace.ids, trace.sizes, capacity, hits, seed, rule
    )


POLICIES: dict[str, _Rule] = {
    "fifo": _one_queue(queue.FIFO),
    "lru": _one_queue(queue.LRU),
    "clock": _one_queue(queue.CLOCK),
    "sieve": _one_queue(queue.SIEVE),
    "s3fifo": _sized(s3fifo),
    "2q": _sized(two_queues),
    "arc": _sized(arc),
    "lfu": _ranked(ranked.LFU),
    "lfuda": _ranked(ranked.LFUDA),
    "gdsf": _ranked(ranked.GDSF),
    "wtinylfu": _sized(tinylfu),
    "lhd": _seeded(lhd),
    "lrb": _trees(LRB),
    "3lcache": _trees(THREE_L),
    "halp": _tagged(halp),
    "foresight": _tagged(foresight),
    "belady": _ranked(ranked.BELADY),
}
"""Policies by name. "belady" looks into the future: no cache can run it."""


@dataclass(frozen=True, slots=True)
class CacheSimulation:
    """The hits and misses of a policy on a trace.

    policy, capacity: the policy, and the bytes of the cache.
    requests, bytes: all requests, and the bytes of their objects.
    misses, missed_bytes: those that the cache did not have.
    hits: which requests the cache had, in their order.
    """

    policy: str
    capacity: int
    requests: int
    bytes: int
    misses: int
    missed_bytes: int
    hits: np.ndarray = field(repr=False, compare=False)

    @property
    def miss_ratio(self) -> float:
        """The share of the requests that were misses."""
        return self.misses / self.requests

    @property
    def byte_miss_ratio(self) -> float:
        """The share of the bytes asked for that were missed."""
        return self.missed_bytes / self.bytes

    def __str__(self) -> str:
        return (
            f"{self.policy}, {self.capacity:,} bytes: {self.misses:,} of"
            f" {self.requests:,} requests missed ({self.miss_ratio:.2%}),"
            f" {self.byte_miss_ratio:.2%} of the bytes"
        )

    def to_json(self) -> dict[str, object]:
        """The figures as plain values."""
        return {
            "policy": self.policy,
            "capacity_bytes": self.capacity,
            "requests": self.requests,
            "misses": self.misses,
            "miss_ratio": self.miss_ratio,
            "missed_bytes": self.missed_bytes,
            "byte_miss_ratio": self.byte_miss_ratio,
        }


def check_policy(policy: str) -> None:
    """Refuse the name of a policy that does not exist."""
    if policy not in POLICIES:
        near = did_you_mean(policy, POLICIES)
        raise PolicyError(
            f"no policy {policy!r}{near}; there are {', '.join(POLICIES)}"
        )


def simulate(
    requests: Trace, capacity: int, policy: str = "lru", *, seed: int = 0
) -> CacheSimulation:
    """Run a policy over a trace, with a cache of `capacity` bytes that is empty at first.

    policy: one of `POLICIES`. seed: of what the policy draws at random.
    """
    check_policy(policy)
    if not capacity >= 1:
        raise PolicyError(
            f"a cache of {capacity} bytes stores nothing; wanted 1 or more"
        )
    hits = np.zeros(len(requests.ids), np.bool_)
    POLICIES[policy](requests, int(capacity), hits, seed)
    return CacheSimulation(
        policy,
        int(capacity),
        len(hits),
        int(requests.sizes.sum()),
        int((~hits).sum()),
        int(requests.sizes[~hits].sum()),
        hits,
    )
