"""The progress of a worker: a thread that records when results are computed."""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import jax

from meshwright.errors import ClusterError
from meshwright.features.cluster.wire.messages import Completion

_POLL_S = 0.5
"""Largest number of seconds that `completions` waits for the first completion."""

_GATHER_S = 0.03
"""Largest number of seconds that `completions` waits for more completions.

It is short against the 100 ms of work that an island keeps on its way to workers.
"""


_END_S = 10.0
"""Largest number of seconds to wait for running programs to end."""


class Failed:
    """Stands for an array whose computation failed, with the reason."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class WorkerProgress:
    """A worker's running instructions, and the completions of ended ones."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: queue.SimpleQueue[
            tuple[int, float, Any, Callable[[str], str]] | None
        ] = queue.SimpleQueue()
        self._last = 0  # the number of the last instruction that has ended
        self._completions: list[Completion] = []
        self._under_way = 0
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def begin(self) -> float:
        """Count one more running instruction; returns the present time in seconds."""
        with self._changed:
            self._under_way += 1
        return time.monotonic()

    def await_results(
        self,
        number: int,
        start_s: float,
        results: Any,
        explain: Callable[[str], str] = str,
    ) -> None:
        """Record the end of an instruction as soon as its results are computed.

        explain: function from the error of a result to the text that is reported.
        """
        self._running.put((number, start_s, results, explain))

    def wait_until_ended(self, number: int) -> None:
        """Wait at most 10 s until instruction `number` and all before it have ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._last >= number, _END_S)

    def completions(self, after: int) -> list[Completion]:
        """The completions of instructions after number `after`.

        Waits up to half a second for the first one; then returns an empty list. Several
        completions are gathered while more instructions run.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._known(after), _POLL_S)
            self._changed.wait_for(lambda: not self._under_way, _GATHER_S)
            found = self._known(after)
            self._completions = found
            return list(found)

    def close(self) -> None:
        """End the thread once all instructions have ended, or after 10 s."""
        self._running.put(None)
        self._watcher.join(_END_S)

    def _known(self, after: int) -> list[Completion]:
        return [each for each in self._completions if each.number > after]

    def _watch(self) -> None:
        """Wait for the results of each instruction, and record when it ended."""
        last_s = time.monotonic()
        while (begun := self._running.get()) is not None:
            number, start_s, results, explain = begun
            is_failed = isinstance(results, Failed)
            error = results.reason if is_failed else _wait(results)
            error = explain(error) if error and not is_failed else error
            now_s = time.monotonic()
            del (
                begun,
                results,
                explain,
            )  # they would keep the arrays until the next instruction
            with self._changed:
                self._under_way -= 1
                took_s = now_s - max(start_s, last_s)
                self._last = number
                self._completions.append(Completion(number, took_s, error))
                self._changed.notify_all()
            last_s = now_s


def present(value: Any) -> Any:
    """The array, after waiting for all of its parts to arrive at this process.

    Raises `ClusterError` if the op that should have made it failed.
    """
    if isinstance(value, Failed):
        raise ClusterError(value.reason)
    return value.result() if isinstance(value, Future) else value


def error_text(error: BaseException) -> str:
    """The type and message of an error; for a `ClusterError` the message only."""
    is_own = isinstance(error, ClusterError)
    return str(error) if is_own else f"{type(error).__name__}: {error}"


def _wait(results: Any) -> str:
    """Wait for the results of an instruction; returns its error, or "".

    Results that were donated to a later program are skipped. The results of one program
    fail together, so that one that is ready shows that the others have not failed: while
    a result is being donated, JAX raises an error for it, and does not count it as deleted
    yet.
    """
    errors: list[BaseException] = []
    is_ready = False
    for result in results or ():
        try:
            array = present(result)
        except Exception as error:  # noqa: BLE001  whatever ended the array's transfer
            return error_text(error)
        if not isinstance(array, jax.Array):
            continue
        try:
            array.block_until_ready()
            is_ready = True
        except Exception as error:  # noqa: BLE001  of the program, whichever it is
            if not array.is_deleted():
                errors.append(error)
    return error_text(errors[0]) if errors and not is_ready else ""
