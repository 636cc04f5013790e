"""Transfers: parts of arrays that workers send to each other, from slice to slice.

A worker sends only the boxes (rectangular parts) that the receiver needs, cut on its
devices. Data for its own devices does not leave it. No worker waits for another one until a
program reads the array.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from meshwright.errors import ClusterError
from meshwright.features.cluster.worker.boxes import (
    Box,
    BoxData,
    assemble,
    cut,
    holders,
    routes,
)

type TransferKey = tuple[int, int]
"""The name of a transfer: number of its instruction, and position of the array in it."""

type _Finish = Callable[[Sequence[BoxData]], Any]

_SENDERS = 8
"""Number of arrays that a worker sends at the same time."""


class Delivery(NamedTuple):
    """The parts of one array that one worker sends to another in one transfer.

    error: why the array does not exist; "" if it does.
    """

    key: TransferKey
    sender: int
    parts: tuple[BoxData, ...]
    error: str = ""


class Mailbox:
    """Deliveries from other workers, kept until all of a transfer have arrived.

    Deliveries may come before this worker has reached the transfer's instruction.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrived: dict[TransferKey, list[Delivery]] = {}
        self._expected: dict[TransferKey, tuple[int, _Finish, Future[Any]]] = {}
        self._failed: dict[TransferKey, str] = {}

    def expect(self, key: TransferKey, count: int, finish: _Finish) -> Future[Any]:
        """The future result of `finish`, called with the parts of `count` deliveries."""
        future: Future[Any] = Future()
        with self._lock:
            self._expected[key] = count, finish, future
        self._settle(key)
        return future

    def deliver(self, delivery: Delivery) -> None:
        """Store a delivery."""
        with self._lock:
            if delivery.key in self._failed:
                return
            self._arrived.setdefault(delivery.key, []).append(delivery)
        self._settle(delivery.key)

    def _settle(self, key: TransferKey) -> None:
        """Finish a transfer if all deliveries have arrived, or one can never arrive."""
        with self._lock:
            arrived = self._arrived.get(key, [])
            errors = [each.error for each in arrived if each.error]
            if errors:
                self._failed[key] = errors[0]
                del self._arrived[key]
            reason = self._failed.get(key, "")
            expected = self._expected.get(key)
            if expected is None or not (reason or len(arrived) >= expected[0]):
                return
            del self._expected[key]
            self._arrived.pop(key, None)
        _, finish, future = expected
        if reason:
            future.set_exception(ClusterError(reason))
            return
        try:
            future.set_result(finish([p for each in arrived for p in each.parts]))
        except Exception as error:  # noqa: BLE001  raised where the array is used
            future.set_exception(error)


class Transfers:
    """The arrays on their way between this worker and others.

    send: a function that sends a delivery to a worker, given its number.
    """

    def __init__(self, send: Callable[[int, Delivery], None]) -> None:
        self.mailbox = Mailbox()
        self._send = send
        self._senders = ThreadPoolExecutor(_SENDERS)
        self._process = jax.process_index()

    def start(
        self, key: TransferKey, source: Any, target: Any, explain: Callable[[str], str]
    ) -> Future[Any] | None:
        """Send this worker's parts of an array, and receive the parts that it needs.

        source: the array; if this process has no part of it, its aval with the
            sharding.
        target: shape, dtype and sharding of the copy on other devices.
        explain: function from an error in computing the array to the text that
            receivers get.
        Returns a future of the copy; `None` if this process has no part of it.
        """
        if source.shape != target.shape:
            raise ClusterError(
                f"an array of shape {source.shape} for an argument of {target.shape}"
            )
        me, receivers = self._process, holders(target)
        found = list(routes(holders(source), receivers, me))
        boxes: dict[int, list[Box]] = {}
        for route in found:
            if route.sender == me:
                boxes.setdefault(route.receiver, []).append(route.box)
        kept = cut(source, boxes.pop(me, []))
        for receiver, wanted in boxes.items():
            parts = cut(source, wanted)
            self._senders.submit(self._post, receiver, key, parts, explain)
        if all(me not in each for each in receivers.values()):
            return None
        senders = {route.sender for route in found if route.receiver == me} - {me}

        def finish(arrived: Sequence[BoxData]) -> jax.Array:
            return assemble(target, [*kept, *arrived])

        return self.mailbox.expect(key, len(senders), finish)

    def close(self) -> None:
        """End the threads, after they have sent the deliveries that are on their way."""
        self._senders.shutdown()

    def fail(self, key: TransferKey, target: Any, reason: str) -> None:
        """Tell all workers that wait for an array that it does not exist."""
        for receiver in {p for each in holders(target).values() for p in each}:
            self._send(receiver, Delivery(key, self._process, (), reason))

    def _post(
        self,
        receiver: int,
        key: TransferKey,
        parts: Sequence[BoxData],
        explain: Callable[[str], str],
    ) -> None:
        """Send parts to a worker once they are computed, or the error of the array."""
        try:
            read = tuple(p._replace(data=np.asarray(p.data)) for p in parts)
            delivery = Delivery(key, self._process, read)
        except Exception as error:  # noqa: BLE001  raised where the array is used
            reason = explain(str(error) or repr(error))
            delivery = Delivery(key, self._process, (), reason)
        self._send(receiver, delivery)
