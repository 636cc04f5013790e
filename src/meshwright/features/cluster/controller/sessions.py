"""The open sessions of a controller, and each tenant's number of waiting calls.

A session whose client is silent is put aside: it has no arrays and no devices any more, but
keeps its programs, and goes on when its client is heard again.
"""

import hmac
import secrets
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from meshwright.errors import ClusterError
from meshwright.features.cluster.controller.limits import (
    MOST_CODE_BYTES,
    MOST_SESSIONS,
    MOST_SILENT,
    MOST_WAITING,
)
from meshwright.features.cluster.controller.tenants import Session, Tenant


class Sessions:
    """The open sessions of all tenants.

    known: sessions whose clients give signs of life, by name.
    on_return: called with a session whose client is heard again after it was put aside.
        It raises `ClusterError` if the session cannot go on.
    """

    def __init__(
        self,
        tenants: Sequence[Tenant],
        silence_s: float,
        clock: Callable[[], float],
        on_return: Callable[[Session], None],
    ) -> None:
        self.known: dict[str, Session] = {}
        self.silence_s = silence_s
        self._silent: dict[str, Session] = {}
        self._clock = clock
        self._on_return = on_return
        self._tenants = tuple(tenants)
        self._waiting: Counter[str] = Counter()  # calls, by tenant

    def open(self, token: str) -> Session:
        """Open a session for the tenant with a token; `ClusterError` if it is unknown."""
        given = str(token).encode(errors="replace")
        for tenant in self._tenants:
            if hmac.compare_digest(tenant.token.encode(), given):
                self._require_room(tenant)
                session = Session(secrets.token_hex(16), tenant, self._clock())
                self._begin(session)
                return session
        raise ClusterError("the token is that of no tenant of this cluster")

    def _require_room(self, tenant: Tenant) -> None:
        count = self.counts().get(tenant.name, 0)
        if count >= MOST_SESSIONS:
            raise ClusterError(
                f"tenant {tenant.name} has {count} sessions; close some first"
            )

    def _begin(self, session: Session) -> None:
        self.known[session.name] = session
        session.is_awake.set()

    def require(self, name: str) -> Session:
        """The open session with this name; records that its client is alive.

        Raises `ClusterError` if it is not open.
        """
        is_name = type(name) is str
        session = self.known.get(name) if is_name else None
        if session is None and is_name and (silent := self._silent.pop(name, None)):
            session = self._return(silent)
        if session is None:
            raise ClusterError(
                "the session is unknown: it was closed, its client was silent for long, "
                "or the controller was restarted; connect again"
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

    def put_aside(self, session: Session) -> None:
        """Keep a session whose client is silent, in the place of its tenant's oldest."""
        del self.known[session.name]
        session.is_awake.clear()
        self._silent[session.name] = session
        kept = [s for s in self._silent.values() if s.tenant is session.tenant]
        while len(kept) > MOST_SILENT or _code_bytes(kept) > MOST_CODE_BYTES:
            self._end(self._silent.pop(kept.pop(0).name))

    def _return(self, session: Session) -> Session:
        """Go on with a session that was put aside; it ends if it cannot go on."""
        try:
            self._require_room(session.tenant)
            self._on_return(session)
        except ClusterError as error:
            self._end(session)
            raise ClusterError(
                f"the session cannot go on after its client was silent: {error}"
            ) from None
        self._begin(session)
        return session

    def end(self, session: Session) -> None:
        """End a session; calls that wait for it raise an error."""
        del self.known[session.name]
        self._end(session)

    def _end(self, session: Session) -> None:
        session.is_ended = True
        session.is_awake.set()

    def counts(self) -> dict[str, int]:
        """The number of sessions of each tenant that has some."""
        return dict(Counter(each.tenant.name for each in self.known.values()))


def _code_bytes(sessions: Sequence[Session]) -> int:
    """Bytes of the code of all programs of some sessions."""
    return sum(len(p.code) for each in sessions for p in each.programs.values())
