"""A client's session with a controller, and handles to the arrays that it has made.

Requests are sent in the order of the calls. Ray may deliver them in another, so each
submission has a number.
"""

import collections
import contextlib
import itertools
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol, Self

import jax
import numpy as np

from meshwright.errors import ClusterError
from meshwright.features.cluster.wire.messages import Fetched, Free, HostArray, Request
from meshwright.jax_private import is_key

_MOST_UNANSWERED = 32
"""Number of unanswered submissions at which a client waits for the oldest one."""

_BATCH = 64
"""Number of gathered requests that a client sends without waiting any longer.

Fewer requests are sent once all earlier submissions are answered.
"""

_BEAT_S = 2.0
"""Seconds between two signs of life of a client."""


class Connection(Protocol):
    """A client's connection to a controller.

    address: address at which other clients find the controller; "" if they cannot.
    owned: whether the controller ends with the connection.
    """

    address: str
    owned: bool

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


class RemoteArray:
    """A handle to an array on the workers of a slice, which may not be computed yet.

    It has `shape` and `dtype`, so that it is an argument of a step like any array. When the
    last reference to it is dropped, its memory on the workers is freed.

    devices: the devices that hold it; `None` while no program has read it.
    copies: copies on other slices, by their devices. They live as long as this handle.
    """

    def __init__(
        self,
        session: "ClientSession",
        number: int,
        aval: Any,
        devices: tuple[int, ...] | None = None,
    ) -> None:
        self.shape: tuple[int, ...] = tuple(aval.shape)
        self.dtype = aval.dtype
        self.weak_type: bool = getattr(aval, "weak_type", False)
        self.number = number
        self.session = session
        self.devices = devices
        self.copies: dict[tuple[int, ...], RemoteArray] = {}
        self._is_donated = False
        weakref.finalize(self, session.drop, number).atexit = False

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    def result(self) -> Any:
        """The whole array in this process, once it is computed: NumPy, or PRNG keys.

        Raises `ClusterError` if it cannot be computed, was donated, or was lost.
        """
        return self.assemble(self.fetching().result())

    def block_until_ready(self) -> Self:
        """Wait until the array is computed, and return this handle; no data is fetched.

        An error of the program is raised where the data is read.
        """
        self.require_kept()
        self.session.wait(self.number)
        return self

    def fetching(self) -> Future[Any]:
        """A future of the array's parts, which the workers send."""
        self.require_kept()
        return self.session.fetch(self.number)

    def assemble(self, parts: Sequence[Any]) -> Any:
        """The whole array, from the parts that `fetching` returned."""
        found = [self.session.connection.load(part) for part in parts]
        return _assemble([part for part in found if part is not None])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.result(), dtype)

    def __float__(self) -> float:
        return float(self.result())

    def __int__(self) -> int:
        return int(self.result())

    def __bool__(self) -> bool:
        return bool(self.result())

    def require_kept(self) -> None:
        """Raise `ClusterError` if the array was donated to a call."""
        if self._is_donated:
            raise ClusterError(
                f"array {self.number} was donated to a call; go on with its results"
            )

    def donate(self) -> None:
        """Record that the array is donated to a call, and drop all its copies."""
        self._is_donated = True
        self.copies.clear()
        self.session.drop(self.number)

    def __repr__(self) -> str:
        state = ", donated" if self._is_donated else ""
        return f"RemoteArray({self.dtype}{list(self.shape)}{state})"


class ClientSession:
    """A client's session with the controller.

    It numbers arrays and programs, sends requests in order, and sends signs of life.

    copied: handles that have copies on other slices.
    """

    def __init__(self, connection: Connection, token: str) -> None:
        self.connection = connection
        self.name: str = connection.call("open", token).result()
        self.copied: weakref.WeakSet[RemoteArray] = weakref.WeakSet()
        self._numbers = itertools.count()
        self._dropped: collections.deque[int] = collections.deque()
        self._unanswered: collections.deque[Future[Any]] = collections.deque()
        self._num_sent = 0
        self._waiting: list[Request] = []  # only while a submission is unanswered
        self._answered = threading.Event()
        self._sending, self._settling = threading.Lock(), threading.Lock()
        self._closed = threading.Event()
        own = weakref.ref(self), self._answered
        threading.Thread(target=_tend, args=own, daemon=True).start()

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the controller for this session, and return its answer."""
        return self.connection.call(method, self.name, *arguments).result()

    def submit(self, *requests: Request) -> None:
        """Send requests; raises the error of an earlier request that was refused.

        Requests are gathered while the controller processes a submission, so that a
        chain of calls needs few messages.
        """
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

    def fetch(self, number: int) -> Future[Any]:
        """A future of an array's parts; requests so far are executed first."""
        self.flush()
        return self.connection.call("fetch", self.name, self._num_sent, number)

    def wait(self, number: int) -> None:
        """Wait until an array is computed by the requests sent so far."""
        self.flush()
        self.connection.call("wait", self.name, self._num_sent, number).result()

    def fetch_all(self, numbers: Sequence[int]) -> Future[Any]:
        """A future of the parts of several arrays, fetched by one message."""
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

    def beat(self) -> None:
        """Send a sign of life, the waiting requests, and the numbers of freed arrays."""
        self.flush()
        self.connection.call("beat", self.name)

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

    def close(self) -> None:
        """End the session; its arrays are freed."""
        if not self._closed.is_set():
            self._closed.set()
            self.connection.call("close", self.name).result()


def _tend(session: weakref.ref[ClientSession], answered: threading.Event) -> None:
    """Send signs of life, and waiting requests as soon as the controller has answered.

    Ends when the session is closed or garbage collected, or its connection has ended.
    """
    next_beat_s = 0.0
    while (known := session()) is not None and not known.is_closed:
        try:
            if time.monotonic() >= next_beat_s:
                known.beat()
                next_beat_s = time.monotonic() + _BEAT_S
            elif known.is_free:
                known.flush()
        except ClusterError:  # whoever calls next is told
            return
        del known
        answered.wait(_BEAT_S)
        answered.clear()


def host_array(leaf: Any) -> tuple[HostArray, Any]:
    """An array in this process's memory, with its shape and dtype.

    Raises `ClusterError` if `leaf` is not an array.
    """
    if isinstance(leaf, jax.Array) and is_key(leaf.dtype):
        data = np.asarray(jax.random.key_data(leaf))
        value = HostArray(data, str(jax.random.key_impl(leaf)))
        return value, jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    try:
        aval: Any = jax.api_util.shaped_abstractify(leaf)
        return HostArray(np.asarray(leaf, aval.dtype)), aval
    except TypeError:
        raise ClusterError(
            f"{leaf!r:.60} is a {type(leaf).__name__}; wanted an array of numbers or a "
            "number, which workers can keep"
        ) from None


def _assemble(parts: Sequence[Fetched]) -> Any:
    """Put the parts from all workers together to the whole array.

    Raises `ClusterError` if a part is missing.
    """
    shards = [shard for part in parts for shard in part.shards]
    if not shards:
        raise ClusterError("no worker has a part of the array")
    key_type, shape = parts[0].key_type, parts[0].shape
    whole: Any = np.empty(shape, shards[0].data.dtype)
    is_missing = np.ones(shape, bool)
    for shard in shards:
        whole[shard.slices], is_missing[shard.slices] = shard.data, False
    if is_missing.any():
        raise ClusterError(f"the workers lack {is_missing.sum()} elements of the array")
    return jax.random.wrap_key_data(whole, impl=key_type) if key_type else whole
