"""The open sessions of a controller, and each tenant's number of waiting calls."""

import hmac
import secrets
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from meshwright.errors import ClusterError
from meshwright.features.cluster.controller.limits import MOST_SESSIONS, MOST_WAITING
from meshwright.features.cluster.controller.tenants import Session, Tenant


class Sessions:
    """The open sessions of all tenants.

    known: open sessions by name.
    """

    def __init__(
        self, tenants: Sequence[Tenant], silence_s: float, clock: Callable[[], float]
    ) -> None:
        self.known: dict[str, Session] = {}
        self.silence_s = silence_s
        self._clock = clock
        self._tenants = tuple(tenants)
        self._waiting: Counter[str] = Counter()  # calls, by tenant

    def open(self, token: str) -> Session:
        """Open a session for the tenant with a token; `ClusterError` if it is unknown."""
        given = str(token).encode(errors="replace")
        for tenant in self._tenants:
            if hmac.compare_digest(tenant.token.encode(), given):
                count = self.counts().get(tenant.name, 0)
                if count >= MOST_SESSIONS:
                    raise ClusterError(
                        f"tenant {tenant.name} has {count} sessions; close some first"
                    )
                session = Session(secrets.token_hex(16), tenant, self._clock())
                self.known[session.name] = session
                return session
        raise ClusterError("the token is that of no tenant of this cluster")

    def require(self, name: str) -> Session:
        """The open session with this name; records that its client is alive.

        Raises `ClusterError` if it is not open.
        """
        session = self.known.get(name) if type(name) is str else None
        if session is None:
            raise ClusterError(
                "the session is unknown: it was closed, its client was silent for "
                f"{self.silence_s:.0f} s, or the controller was restarted; connect again"
            )
        session.seen_s = self._clock()
        return session

    @contextmanager
    def call(self, name: str) -> Generator[Session]:
        """A context for a call that may wait.

        Raises `ClusterError` if too many calls of the session's tenant wait already.
        """
        session = self.require(name)
        tenant = session.tenant.name
        if self._waiting[tenant] >= MOST_WAITING:
            raise ClusterError(
                f"{MOST_WAITING} calls of tenant {tenant} wait already; wait for some of "
                "their answers first"
            )
        self._waiting[tenant] += 1
        try:
            yield session
        finally:
            self._waiting[tenant] -= 1

    def silent(self) -> list[Session]:
        """Sessions whose clients have sent no sign of life for too long."""
        least_s = self._clock() - self.silence_s
        return [each for each in self.known.values() if each.seen_s < least_s]

    def counts(self) -> dict[str, int]:
        """The number of sessions of each tenant that has some."""
        return dict(Counter(each.tenant.name for each in self.known.values()))
