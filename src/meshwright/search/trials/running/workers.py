"""Evaluations in worker processes, with a limit on the time of each.

Each worker is a fresh interpreter (no fork: JAX and other libraries have threads). A
worker that dies, or takes too long, is replaced, and its trial fails with the reason.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from meshwright.errors import SearchError
from meshwright.search.trials.costs.trial import Request, TrialOutcome
from meshwright.search.trials.running.evaluate import Evaluate, outcome_of

type OnOutcome = Callable[[Request, TrialOutcome], None]
"""Called after each evaluation, in the order in which they end."""

_SPAWN = multiprocessing.get_context("spawn")


def run_here(
    evaluate: Evaluate, requests: Sequence[Request], on_outcome: OnOutcome
) -> list[TrialOutcome]:
    """The outcomes of requests, evaluated one after the other in this process."""
    outcomes: list[TrialOutcome] = []
    for request in requests:
        outcomes.append(outcome_of(evaluate, request))
        on_outcome(request, outcomes[-1])
    return outcomes


@dataclass(slots=True)
class _Worker:
    """A worker process, and the request that it works on."""

    process: Any
    pipe: Connection
    request: Request | None = None
    end_at: float = float("inf")

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


@dataclass(slots=True)
class WorkerPool:
    """Worker processes that evaluate requests; close it when done.

    seconds: limit on the time of one evaluation; `None` is no limit.
    """

    evaluate: Evaluate
    count: int
    seconds: float | None = None
    _workers: list[_Worker] = field(default_factory=list[_Worker])
    _code: bytes = b""

    def __post_init__(self) -> None:
        try:
            self._code = pickle.dumps(self.evaluate)
        except (pickle.PicklingError, AttributeError, TypeError) as fault:
            raise SearchError(
                f"the evaluation cannot be sent to worker processes ({fault}): define it "
                "at the top of a module, or use workers=0"
            ) from None

    def run(
        self, requests: Sequence[Request], on_outcome: OnOutcome
    ) -> list[TrialOutcome]:
        """The outcomes of requests, in their order."""
        todo, outcomes = list(reversed(requests)), dict[int, TrialOutcome]()
        while len(outcomes) < len(requests):
            while len(self._workers) < min(self.count, len(todo) + self._num_busy()):
                self._workers.append(self._start())
            for worker in self._workers:
                if worker.request is None and todo:
                    self._send(worker, todo.pop())
            for request, outcome in self._collect():
                outcomes[request.number] = outcome
                on_outcome(request, outcome)
        return [outcomes[request.number] for request in requests]

    def close(self) -> None:
        """End all workers, whatever they do."""
        for worker in self._workers:
            worker.kill()
        self._workers = []

    def _num_busy(self) -> int:
        return sum(worker.request is not None for worker in self._workers)

    def _start(self) -> _Worker:
        mine, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_serve, args=(theirs, self._code), daemon=True)
        process.start()
        theirs.close()
        try:
            fault = mine.recv()
        except EOFError:
            process.join()
            fault = f"the process ended with status {process.exitcode}"
        if fault:
            process.kill()
            raise SearchError(
                f"a worker process cannot load the evaluation ({fault}): a script needs "
                "`if __name__ == '__main__'` around its search; or use workers=0"
            )
        return _Worker(process, mine)

    def _send(self, worker: _Worker, request: Request) -> None:
        worker.request = request
        limit = self.seconds
        worker.end_at = float("inf") if limit is None else time.monotonic() + limit
        # Of a dead worker the other end of the pipe says so next.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            worker.pipe.send(request)

    def _collect(self) -> list[tuple[Request, TrialOutcome]]:
        """Requests that ended, by an outcome, a dead worker or the time limit."""
        busy = [worker for worker in self._workers if worker.request is not None]
        end_at = min(worker.end_at for worker in busy)
        left = None if end_at == float("inf") else max(0.0, end_at - time.monotonic())
        ready = wait([worker.pipe for worker in busy], left)
        ended: list[tuple[Request, TrialOutcome]] = []
        for worker in busy:
            outcome = self._outcome(worker, worker.pipe in ready)
            if outcome is not None and worker.request is not None:
                ended.append((worker.request, outcome))
                worker.request = None
        return ended

    def _outcome(self, worker: _Worker, is_ready: bool) -> TrialOutcome | None:
        """TrialOutcome of a worker's evaluation; `None` if it goes on."""
        if is_ready:
            try:
                return worker.pipe.recv()
            except (EOFError, ConnectionResetError, pickle.UnpicklingError):
                worker.process.join(1)
                reason = f"its process ended ({_ending(worker.process.exitcode)})"
        elif time.monotonic() >= worker.end_at:
            reason = f"it took more than {self.seconds:g} s"
        else:
            return None
        worker.kill()
        self._workers.remove(worker)
        return TrialOutcome(reason=reason, seconds=self.seconds or 0.0)


def _ending(status: int | None) -> str:
    if status is not None and status < 0:
        return signal.Signals(-status).name
    return f"status {status}"


def _serve(pipe: Connection, code: bytes) -> None:
    """Evaluate requests until the other end of the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    try:
        evaluate = pickle.loads(code)
    except Exception as fault:  # noqa: BLE001  any fault of importing the user's code
        pipe.send(f"{type(fault).__name__}: {fault}")
        return
    pipe.send("")
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            return
        pipe.send(outcome_of(evaluate, request))


def _end_with(parent: Any) -> None:
    """End this process when its parent ends, even if that was killed."""
    parent.join()
    os._exit(1)
