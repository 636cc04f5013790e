"""Limits of an island, and of the data that the controller keeps for its clients.

A well-behaved client never reaches them: it sends at most 32 submissions without an
answer, of about 64 requests each, and frees arrays that it no longer uses. The limits bound
the memory that a hostile or broken client can take.
"""

from dataclasses import dataclass

MOST_REQUESTS = 10_000
"""Largest number of requests in one submission of a client."""

MOST_EARLY = 100
"""Largest number of submissions that may be missing before one that has arrived."""

MOST_WAITING = 1_000
"""Largest number of a tenant's calls that may wait in the controller at once."""

MOST_SESSIONS = 1_000
"""Largest number of open sessions of one tenant."""

MOST_SILENT = 8
"""Largest number of a tenant's sessions that are kept although their client is silent."""

MOST_PROGRAMS = 10_000
"""Largest number of programs of one session."""

MOST_CODE_BYTES = 2**31
"""Largest number of bytes of the code of all programs of one tenant."""

MOST_ARRAYS = 1_000_000
"""Largest number of arrays of one session, and of arrays in one call of `fetch_all`."""

MOST_REASONS = 100_000
"""Number of a session's lost arrays for which the controller remembers the reason."""


@dataclass(frozen=True, slots=True)
class IslandLimits:
    """Limits of an island: of the instructions on their way to workers, and of time.

    depth: number of instructions that may be on their way at once.
    ahead_s, most: more than `depth` may be on their way, up to `most`, if together they
        are expected to take less than `ahead_s` seconds.
    answer_s: seconds within which a worker must answer.
    stall_s: seconds within which some instruction that is on its way must complete.
    told_s: seconds without any completed instruction after which clients are told so.
    retry_s: seconds between a failed start of a gang and the next try.
    tries: number of failed starts in a row after which waiting clients get the reason.
    """

    depth: int = 8
    ahead_s: float = 0.1
    most: int = 256
    answer_s: float = 20.0
    stall_s: float = 600.0
    told_s: float = 30.0
    retry_s: float = 1.0
    tries: int = 3
