"""A client's session with a controller, and its connection.

Requests are sent in the order of the calls. Ray may deliver them in another, so each
submission has a number.
"""

import atexit
import collections
import contextlib
import itertools
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, Protocol

from meshwright.errors import ClusterError
from meshwright.features.cluster.life_signs import (
    TendedSession,
    close_at_exit,
    tend,
)
from meshwright.features.cluster.wire.messages import Free, HostArray, Request

_MOST_UNANSWERED = 32
"""Number of unanswered submissions at which a client waits for the oldest one."""

_BATCH = 64
"""Number of gathered requests that a client sends without waiting any longer.

Fewer requests are sent once all earlier submissions are answered.
"""


class Connection(Protocol):
    """A client's connection to a controller.

    address: address at which other clients find the controller; "" if they cannot.
    owned: whether the controller ends with the connection.
    shares_memory: whether workers read a stored array in the memory of this process, so
        that whoever stores it must not write there later.
    """

    address: str
    owned: bool
    shares_memory: bool

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        """Call a method of the controller; returns a future of its answer.

        Calls may arrive in another order. Raises `ClusterError` if the connection has
        ended.
        """
        ...

    def store(self, value: HostArray) -> Any:
        """An array in the form that messages have: a reference to it, or the array."""
        ...

    def load(self, value: Any) -> Any:
        """The array behind a reference in an answer, or the answer itself."""
        ...

    def close(self) -> None:
        """End the connection, and the cluster if this connection owns it."""
        ...


class ClientSession:
    """A client's session with the controller.

    It numbers arrays and programs, sends requests in order, and sends signs of life.

    copied: handles that have copies on other slices.
    """

    def __init__(self, connection: Connection, token: str) -> None:
        self.connection = connection
        self.name: str = connection.call("open", token).result()
        self.copied: weakref.WeakSet[Any] = weakref.WeakSet()  # RemoteArrays
        self._numbers = itertools.count()
        self._dropped: collections.deque[int] = collections.deque()
        self._unanswered: collections.deque[Future[Any]] = collections.deque()
        self._num_sent = 0
        self._waiting: list[Request] = []  # only while a submission is unanswered
        self._answered = threading.Event()
        self._sending, self._settling = threading.Lock(), threading.Lock()
        self._closed = threading.Event()
        own: weakref.ref[TendedSession] = weakref.ref(self)
        self._at_exit = partial(close_at_exit, own)
        atexit.register(self._at_exit)
        tended = own, partial(connection.call, "close", self.name), self._answered
        threading.Thread(target=tend, args=tended, daemon=True).start()

    def require_open(self) -> None:
        """Raise `ClusterError` after the session has ended.

        A call of Ray would start another Ray then.
        """
        if self._closed.is_set():
            raise ClusterError("this cluster was closed; make another with mw.cluster")

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the controller for this session, and return its answer."""
        self.require_open()
        return self.connection.call(method, self.name, *arguments).result()

    def submit(self, *requests: Request) -> None:
        """Send requests; raises the error of an earlier request that was refused.

        Requests are gathered while the controller processes a submission, so that a
        chain of calls needs few messages.
        """
        self.require_open()
        self._settle(len(self._unanswered) >= _MOST_UNANSWERED)
        with self._sending:
            self._waiting += (*self._take_dropped(), *requests)
            if self.is_free or len(self._waiting) >= _BATCH:
                self._send()

    def _send(self) -> None:
        """Send the requests that wait as the next submission."""
        sent, self._waiting = tuple(self._waiting), []
        number, self._num_sent = self._num_sent, self._num_sent + 1
        future = self.connection.call("submit", self.name, number, sent)
        self._unanswered.append(future)
        future.add_done_callback(lambda _: self._answered.set())

    def flush(self) -> None:
        """Send all gathered requests at once, and the numbers of dropped arrays."""
        with self._sending:
            self._waiting += self._take_dropped()
            if self._waiting:
                self._send()

    def wait_taken(self) -> None:
        """Wait until the controller has taken or refused all requests so far."""
        self.flush()
        wait(tuple(self._unanswered))

    def wait(self, number: int) -> None:
        """Wait until an array is computed by the requests sent so far."""
        self.require_open()
        self.flush()
        self.connection.call("wait", self.name, self._num_sent, number).result()

    def fetch_all(self, numbers: Sequence[int]) -> Future[Any]:
        """A future of the parts of arrays; requests so far are executed first."""
        self.require_open()
        self.flush()
        sent = self._num_sent
        return self.connection.call("fetch_all", self.name, sent, list(numbers))

    def _settle(self, is_full: bool) -> None:
        """Raise the error of a refused submission; wait if too many are unanswered."""
        with self._settling:
            while self._unanswered and (is_full or self._unanswered[0].done()):
                try:
                    self._unanswered.popleft().result()
                except ClusterError:
                    for handle in self.copied:  # the copies may never have been made
                        handle.copies.clear()
                    raise
                is_full = False

    def skip_refused(self) -> None:
        """Wait for all submissions, and discard the errors of refused ones."""
        self.flush()
        while self._unanswered:
            with contextlib.suppress(ClusterError):
                self._settle(True)

    def new_numbers(self, count: int) -> tuple[int, ...]:
        """Numbers for new arrays or programs."""
        return tuple(itertools.islice(self._numbers, count))

    def drop(self, number: int) -> None:
        """Record that an array's handle is gone, so that the array can be freed.

        The garbage collector may call this at any time.
        """
        self._dropped.append(number)

    def _take_dropped(self) -> list[Free]:
        numbers = []
        while self._dropped:
            numbers.append(self._dropped.popleft())
        return [Free(tuple(numbers))] if numbers else []

    def beat(self) -> Future[Any]:
        """Send a sign of life, the waiting requests, and the numbers of freed arrays.

        Returns a future of what everybody waits for, "" if nothing takes long.
        """
        self.flush()
        return self.connection.call("beat", self.name)

    @property
    def is_closed(self) -> bool:
        """Whether the session has ended."""
        return self._closed.is_set()

    @property
    def is_free(self) -> bool:
        """Whether the controller has answered all submissions so far."""
        return all(future.done() for future in tuple(self._unanswered))

    def stop(self) -> None:
        """End all sessions of the cluster, this one too, and its workers."""
        self.ask("shutdown")
        self._closed.set()

    def close(self, most_s: float | None = None) -> None:
        """End the session; its arrays are freed.

        most_s: seconds to wait for that; raises `TimeoutError` if it takes longer.
        """
        atexit.unregister(self._at_exit)
        if not self._closed.is_set():
            self._closed.set()
            self.connection.call("close", self.name).result(most_s)
