"""Limits of an island, and of the data that the controller keeps for its clients.

A well-behaved client never reaches them: it sends at most 32 submissions without an
answer, of about 64 requests each, and frees arrays that it no longer uses. The limits bound
the memory that a hostile or broken client can take.
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

    depth: number of instructions that may be on their way at once.
    ahead_s, most: more may be on their way, up to `most`, if together they are expected to
        take less than `ahead_s` seconds.
    answer_s: seconds within which a worker must answer.
    stall_s: seconds within which some instruction that is on its way must complete.
    retry_s: seconds between a failed start of a gang and the next try.
    tries: number of failed starts in a row after which waiting clients get the reason.
    """

    depth: int = 8
    ahead_s: float = 0.1
    most: int = 256
    answer_s: float = 20.0
    stall_s: float = 600.0
    retry_s: float = 1.0
    tries: int = 3
