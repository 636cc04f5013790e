"""Signs of life of a client, and lines that say why its cluster does not go on."""

import contextlib
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from rich.console import Console

from meshwright.errors import ClusterError
from meshwright.features.cluster.controller.running_clock import RunningClock

_BEAT_S = 2.0
"""Seconds between two signs of life of a client."""

_PATIENCE_S = 10.0
"""Seconds of waiting after which a line says what is waited for."""

_AGAIN_S = 50.0
"""Seconds after which a line says so again."""

_CLOSE_S = 5.0
"""Seconds that a process that ends waits for the end of its session."""


class Notice:
    """Lines about what a client waits for: after ten seconds, each minute, at the end.

    tell: prints a line. clock: returns seconds from an arbitrary start.
    """

    def __init__(
        self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.clock = RunningClock(self._on_pause, clock)
        self._tell = tell
        self._reason = ""
        self._heard_s = self._well_s = self.clock()
        self._told_s: float | None = None

    def _on_pause(self, seconds: float) -> None:
        if seconds > _PATIENCE_S:
            self._tell(
                f"this process stood still for {seconds:.0f} s; if its cluster took it to "
                "be dead, its arrays are freed, and the next call says so"
            )

    def hear(self, answer: Future[Any]) -> None:
        """Take the controller's answer to a sign of life: what everybody waits for."""
        if answer.exception() is None:
            self._heard_s, self._reason = self.clock(), str(answer.result() or "")

    def look(self) -> None:
        """Print a line if one is due."""
        now_s = self.clock()
        quiet_s = now_s - self._heard_s
        reason = self._reason
        if quiet_s > 2 * _BEAT_S:
            reason = (
                f"the controller has not answered for {quiet_s:.0f} s: it is stopped, or "
                "its machine is busy"
            )
        if not reason:
            if self._told_s is not None:
                self._tell(f"the cluster goes on, after {now_s - self._well_s:.0f} s")
            self._well_s, self._told_s = now_s, None
        elif now_s - (self._told_s or self._well_s + _PATIENCE_S - _AGAIN_S) > _AGAIN_S:
            self._told_s = now_s
            self._tell(f"the cluster waits: {reason}")


def tell(line: str) -> None:
    """Print a line on standard error."""
    Console(stderr=True).print(line, highlight=False, markup=False, soft_wrap=True)


class TendedSession(Protocol):
    """What is read and called of a client's session."""

    @property
    def is_closed(self) -> bool:
        """Whether the session has ended."""
        ...

    @property
    def is_free(self) -> bool:
        """Whether the controller has answered all submissions so far."""
        ...

    def beat(self) -> Future[Any]:
        """Send a sign of life."""
        ...

    def flush(self) -> None:
        """Send the requests that wait."""
        ...

    def close(self, most_s: float | None = None) -> None:
        """End the session, and wait for that at most so long."""
        ...


def tend(
    reference: weakref.ref[TendedSession],
    close: Callable[[], object],
    answered: threading.Event,
) -> None:
    """Send signs of life, and waiting requests as soon as the controller has answered.

    Ends when the session is closed or its connection has ended. close: closes a session
    that was garbage collected, on its connection.
    """
    notice = Notice(tell)
    next_beat_s = 0.0
    while (session := reference()) is not None and not session.is_closed:
        try:
            if notice.clock() >= next_beat_s:
                session.beat().add_done_callback(notice.hear)
                next_beat_s = notice.clock() + _BEAT_S
            elif session.is_free:
                session.flush()
        except ClusterError:  # whoever calls next is told
            return
        del session
        notice.look()
        answered.wait(_BEAT_S)
        answered.clear()
    if reference() is None:
        with contextlib.suppress(ClusterError):
            close()


def close_at_exit(reference: weakref.ref[TendedSession]) -> None:
    """Close a session of a program that ends without, so that its devices are free."""
    session = reference()
    if session is not None:
        with contextlib.suppress(ClusterError, TimeoutError):
            session.close(_CLOSE_S)
