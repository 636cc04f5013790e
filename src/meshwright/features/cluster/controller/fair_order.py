"""The order in which an island runs requests: by tenants' weights and used time.

Collectives of two programs deadlock if devices start them in different orders, so the
requests of all tenants of a gang pass through one queue. It is fair in seconds, not in
requests: the next request is that of the tenant whose used seconds, divided by its
weight, are fewest (weighted fair queueing, Demers, Keshav and Shenker, 1989).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from meshwright.errors import ClusterError


@dataclass(slots=True)
class Share[E]:
    """One tenant's queue of requests.

    weight: its share of the time, relative to other tenants' weights.
    used_s: seconds used so far, divided by the weight. A tenant that comes back after a
        pause starts at the least of the active tenants' values, so that it cannot save
        up time.
    """

    weight: float
    used_s: float = 0.0
    waiting: deque[E] = field(default_factory=deque)


class FairQueue[E]:
    """Requests of several tenants, taken in the order of their used time."""

    def __init__(self) -> None:
        self._shares: dict[str, Share[E]] = {}

    def set_weight(self, tenant: str, weight: float) -> None:
        """Add a tenant, or change its weight; raises `ClusterError` unless it is > 0."""
        if not 0 < weight < float("inf"):
            raise ClusterError(f"weight {weight!r} of tenant {tenant!r}; wanted > 0")
        share = self._shares.setdefault(tenant, Share(weight))
        share.used_s *= share.weight / weight
        share.weight = weight

    def add(self, tenant: str, entry: E) -> None:
        """Queue an entry behind the others of its tenant."""
        share = self._shares[tenant]
        if not share.waiting:
            others = [s.used_s for s in self._shares.values() if s.waiting]
            share.used_s = max(share.used_s, min(others, default=share.used_s))
        share.waiting.append(entry)

    def take(self, expected_s: Callable[[E], float]) -> tuple[str, E] | None:
        """Remove and return the next entry with its tenant; `None` if no entry waits.

        expected_s: returns the seconds that an entry is expected to take. They are
            charged to the tenant at once.
        """
        waiting = [(s.used_s, t) for t, s in self._shares.items() if s.waiting]
        if not waiting:
            return None
        _, tenant = min(waiting)
        entry = self._shares[tenant].waiting.popleft()
        self.charge(tenant, expected_s(entry))
        return tenant, entry

    def charge(self, tenant: str, seconds: float) -> None:
        """Add seconds to what a tenant has used; corrections may be negative."""
        share = self._shares[tenant]
        share.used_s += seconds / share.weight

    def drop(self, tenant: str) -> list[E]:
        """Remove and return all entries of a tenant that wait."""
        share = self._shares[tenant]
        dropped, share.waiting = list(share.waiting), deque()
        return dropped

    def length(self, tenant: str) -> int:
        """The number of entries of a tenant that wait."""
        return len(self._shares[tenant].waiting)

    @property
    def used_s(self) -> dict[str, float]:
        """The seconds that each tenant has used, divided by its weight."""
        return {tenant: share.used_s for tenant, share in self._shares.items()}
