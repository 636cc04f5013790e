"""Requests that wait for their turn on an island, and the sessions that they belong to."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from meshwright.features.cluster.wire.messages import Call, Define, End, Request
from meshwright.features.cluster.wire.program_code import program_name


@dataclass(slots=True, eq=False)
class QueuedRequest:
    """A request of one session that waits for its turn, or is on its way to the workers.

    completed: a future, done when all workers have completed the request; its exception
        says why they never will.
    expected_s: seconds that the request was expected to take when it was sent.
    waiting_for: workers that have not completed it.
    """

    session: str
    request: Request | End
    completed: asyncio.Future[None]
    tenant: str
    expected_s: float = 0.0
    waiting_for: set[int] = field(default_factory=set)
    took_s: float = 0.0
    has_failed: bool = False


@dataclass(frozen=True, slots=True)
class IslandClients:
    """Callbacks through which an island asks about its sessions.

    on_loss: called with the reason when the gang is lost, before the next one starts.
    setup: returns the requests, with their sessions, that each new gang gets first.
    place: translates a session's request to the devices of the present gang.
    """

    on_loss: Callable[[str], None]
    setup: Callable[[], Iterable[tuple[str, Request]]]
    place: Callable[[str, Request | End], Request | End]


def running_name(
    on_way: Iterable[QueuedRequest],
    setup: Iterable[tuple[str, Request]],
    worker: int,
) -> str:
    """The name of the program that a worker runs; "" if it runs none with a name.

    on_way: requests on their way to the workers, the oldest first. setup: definitions of
    programs, with their sessions.
    """
    codes = {(s, r.program): r.code for s, r in setup if isinstance(r, Define)}
    for entry in on_way:
        if worker in entry.waiting_for:
            request = entry.request
            is_call = isinstance(request, Call)
            code = codes.get((entry.session, request.program)) if is_call else None
            return program_name(code or b"")
    return ""
