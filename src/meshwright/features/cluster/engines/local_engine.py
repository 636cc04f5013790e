"""A cluster within this process: its devices are one worker, a thread its controller.

It needs no Ray. A program can be tried with it before it runs on many machines.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from meshwright.errors import ClusterError
from meshwright.features.cluster.controller.controller import Controller
from meshwright.features.cluster.controller.gang import Gang, GangSize
from meshwright.features.cluster.wire.messages import (
    ArrayKey,
    Completion,
    HostArray,
    WorkerInstruction,
)
from meshwright.features.cluster.worker.boxes import BoxData
from meshwright.features.cluster.worker.worker import Worker
from meshwright.run.local.devices import find_devices


class LocalGang:
    """A gang of one worker, which runs on threads of this process."""

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.processes: tuple[int, ...] = (0,) * len(find_devices())
        self.num_workers = 1
        self.platform = str(find_devices()[0].platform)
        self.places = (f"this process, {os.getpid()}",)
        self._worker = Worker(lambda _, delivery: self._worker.deliver(delivery))
        self._order = ThreadPoolExecutor(1)  # instructions, in their order
        self._progress, self._others = ThreadPoolExecutor(1), ThreadPoolExecutor(8)

    def send(self, instructions: Sequence[WorkerInstruction]) -> None:
        """Hand instructions to the worker's thread, without waiting for them."""
        self._order.submit(self._worker.execute, instructions)

    async def completions(self, worker: int, after: int) -> list[Completion]:
        """The worker's completions after instruction `after`.

        It answers within about half a second.
        """
        return await self._run(self._progress, self._worker.completions, after)

    async def fetch(self, worker: int, array: ArrayKey) -> tuple[BoxData, ...]:
        """The worker's parts of an array."""
        return await self._run(self._others, self._worker.fetch, array)

    async def stop(self) -> None:
        """End the worker after the instructions that have begun.

        Its threads are joined as well: a thread that is left would call an event loop
        that is closed.
        """
        threads = self._order, self._progress, self._others
        for each in threads:
            each.shutdown(wait=False, cancel_futures=True)
        await asyncio.gather(*(asyncio.to_thread(each.shutdown) for each in threads))
        await asyncio.to_thread(self._worker.close)

    async def _run(
        self, threads: ThreadPoolExecutor, function: Callable[..., Any], argument: Any
    ) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(threads, function, argument)


class LocalEngine:
    """Starts gangs of one worker, on threads of this process."""

    async def start(self, size: GangSize, attempt: int) -> Gang:
        """Start a gang; raises `ClusterError` unless one worker is wanted."""
        self.require_possible(size)
        return LocalGang(attempt)

    def require_possible(self, size: GangSize) -> None:
        """Raise `ClusterError` unless one worker is wanted."""
        if size.workers != 1:
            raise ClusterError(
                f"{size.workers} workers in one process; wanted 1, as the devices of a "
                "process are one worker"
            )


class ThreadConnection:
    """A connection to a controller that runs in a thread of this process."""

    address = ""
    owned = True
    shares_memory = True

    def __init__(self, make: Callable[[], Controller]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._controller = self._run(self._start(make)).result()

    async def _start(self, make: Callable[[], Controller]) -> Controller:
        controller = make()
        await controller.start()
        return controller

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        """Call a method of the controller in its thread; returns a future."""
        if not self._loop.is_running():
            raise ClusterError("the cluster of this process was closed; make another")
        return self._run(getattr(self._controller, method)(*arguments))

    def store(self, value: HostArray) -> HostArray:
        """The array itself, since messages stay within this process."""
        return value

    def load(self, value: Any) -> Any:
        """The array itself, since messages stay within this process."""
        return value

    def close(self) -> None:
        """Stop the controller with its worker, and end the controller's thread."""
        if not self._thread.is_alive():  # closed before
            return
        self._run(self._controller.stop()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self, coroutine: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
