"""A clock that stands still while its process does, and waiting by such a clock."""

import asyncio
import time
from collections.abc import Awaitable, Callable

_MOST_S = 3.0
"""Longest time between two readings of the clock in which the process counts as running.

A controller reads its clock each second. More passes only if the process was stopped
(SIGSTOP, a suspended machine) or got no processor, and then others were not heard either.
"""

_LOOK_S = 1.0
"""Seconds between two readings of the clock by whoever waits."""


class RunningClock:
    """Seconds for which this process has run, as `time.monotonic` without pauses.

    on_pause: called with the seconds of each pause, when it has ended.
    clock: a function that returns seconds from an arbitrary start.
    """

    def __init__(
        self,
        on_pause: Callable[[float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_pause, self._clock = on_pause, clock
        self._last_s = clock()
        self._paused_s = 0.0

    def __call__(self) -> float:
        """The seconds from an arbitrary start; it must be called every second."""
        now_s = self._clock()
        gap_s, self._last_s = now_s - self._last_s, now_s
        if gap_s > _MOST_S:
            self._paused_s += gap_s
            self._on_pause(gap_s)
        return now_s - self._paused_s


async def within[T](
    answer: Awaitable[T], seconds: float, clock: Callable[[], float]
) -> T:
    """The result of `answer`; raises `TimeoutError` after some seconds of a clock."""
    task = asyncio.ensure_future(answer)
    end_s = clock() + seconds
    try:
        while not task.done():
            left_s = end_s - clock()
            if left_s <= 0:
                raise TimeoutError
            await asyncio.wait({task}, timeout=min(_LOOK_S, left_s))
        return task.result()
    finally:
        task.cancel()
