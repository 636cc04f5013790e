"""The figures of a cache that serves."""

from dataclasses import dataclass, fields

COUNTS = (
    "hits",
    "misses",
    "stores",
    "refusals",
    "replacements",
    "evictions",
    "expirations",
    "deletions",
    "loads",
    "failed_loads",
)
"""The figures that each shard counts."""


@dataclass(frozen=True, slots=True)
class CacheMetrics:
    """What a cache has done since it was made, and what it has.

    hits, misses: requests for keys that it had, and that it did not have.
    stores, refusals: objects that it was given and took, and those that it did not take.
    replacements, evictions, expirations, deletions: why objects left it.
    loads, failed_loads: calls of loaders that ended, and those of them that raised.
    objects, bytes: what it has now. capacity: the most bytes that it may have.

    stores = objects + replacements + evictions + expirations + deletions.
    """

    hits: int
    misses: int
    stores: int
    refusals: int
    replacements: int
    evictions: int
    expirations: int
    deletions: int
    loads: int
    failed_loads: int
    objects: int
    bytes: int
    capacity: int

    @property
    def miss_ratio(self) -> float:
        """The share of the requests that were misses; 0 without requests."""
        return self.misses / max(self.hits + self.misses, 1)

    def __str__(self) -> str:
        return ", ".join(
            f"{each.name} {getattr(self, each.name):,}" for each in fields(self)
        )
