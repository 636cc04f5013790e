"""Limits of an island, and of what the controller keeps for its clients.

A well-behaved client meets none of the numbers: it sends at most 32 submissions without
an answer, of about 64 requests, and frees what it drops. They bound the memory that a
hostile or broken one can take.
"""

from dataclasses import dataclass

MOST_REQUESTS = 10_000
"""Requests of one submission."""

MOST_EARLY = 100
"""Submissions by which one may arrive before an earlier one."""

MOST_WAITING = 1_000
"""Calls of one tenant that may wait in the controller at once."""

MOST_SESSIONS = 1_000
"""Sessions that one tenant may have at once."""

MOST_PROGRAMS = 10_000
"""Programs of one session."""

MOST_CODE_BYTES = 2**31
"""Bytes of the code of all programs of one tenant."""

MOST_ARRAYS = 1_000_000
"""Arrays of one session, and numbers of arrays in one question."""

MOST_REASONS = 100_000
"""Arrays of one session that are not there, of which the controller knows why."""


@dataclass(frozen=True, slots=True)
class IslandLimits:
    """Limits of an island.

    depth: instructions on their way at once. ahead_s: seconds of work, by what programs
        took before, for which more may be on their way, up to `most`.
    answer_s: seconds within which a worker must answer. stall_s: seconds within which
        something on its way must complete.
    retry_s: seconds between a gang that did not start and the next one. tries: gangs in
        a row that did not start, after which clients that wait are told why.
    """

    depth: int = 8
    ahead_s: float = 0.1
    most: int = 256
    answer_s: float = 20.0
    stall_s: float = 600.0
    retry_s: float = 1.0
    tries: int = 3
