"""A child process that solves integer programs while its parent does other work.

The parent prices and simulates plans. A thread would not do, since preparing a program
holds Python's global interpreter lock.
"""

import math
import os
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from meshwright.errors import PlanError
from meshwright.planner.solve.memory_limit import SolveBudget, find_optimum
from meshwright.planner.solve.optimum import Choices, Optimum
from meshwright.planner.solve.pricer import Pricer
from meshwright.search.work import WorkMeter

_LEAST_S = 2.0
"""Least seconds of a request, even if it has waited for longer than its own limit.

With 1 s, the solve of the third mesh of EfficientNet-B0 on 32 devices returns the
solution that it starts from.
"""

_GRACE_S = 120.0
"""Real seconds after a search's limit on real time until the process must answer.

It first ends the current round of the solver.
"""

_MOST_WAIT_S = 3600.0
"""Real seconds within which the process must answer, without a limit on real time."""


@dataclass(frozen=True, slots=True)
class SolveRequest:
    """One call of `find_optimum` that the solver process makes.

    seconds: time limit, counted from `submitted_s`; it includes the time that earlier
        requests take. Usually the limit `rounds` ends a solve before.
    submitted_s: reading of the search's meter when the request is submitted.
    net_at: reading of `time.monotonic`, which all processes of a host share, at which
        the solve is cut short.
    pricer, limit, rounds, starts, stop_bound: as in `find_optimum` and `SolveBudget`.
    """

    pricer: Pricer
    limit: float | None
    seconds: float
    rounds: int
    starts: tuple[Choices, ...] = ()
    stop_bound: float = math.inf
    submitted_s: float = 0.0
    net_at: float = math.inf

    def solve(self, meter: WorkMeter) -> Optimum:
        """Run the request, and return the best choices found.

        meter: work meter of the process, as the request before left it.
        """
        meter.advance(self.submitted_s)
        until = max(self.submitted_s + self.seconds, meter.read() + _LEAST_S)
        meter.end_s, meter.net_at = until, self.net_at
        budget = SolveBudget(self.rounds, meter, until, self.stop_bound)
        return find_optimum(self.pricer, self.limit, budget, self.starts)


@dataclass(frozen=True, slots=True)
class SolveAnswer:
    """The result of a request.

    ended_s: the solver's counted work at the end, in seconds of its meter.
    compiling_s: seconds for compiling the solver before the first request; 0 if its code
        is in numba's cache, and in later answers.
    """

    optimum: Optimum
    ended_s: float
    compiling_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SolveJob:
    """A request sent to the solver process, with the work meter of the search."""

    future: Future[SolveAnswer]
    meter: WorkMeter

    def result(self) -> Optimum:
        """Wait for the result, and advance the search's meter to the end of the solve."""
        answer = self.future.result()
        self.meter.advance(answer.ended_s)
        self.meter.count_compiling(answer.compiling_s)
        return answer.optimum


class SolverProcess:
    """A child process that serves requests in order.

    Leaving the `with` block kills it.
    """

    def __enter__(self) -> Self:
        source = str(Path(__file__).parents[3])
        others = os.environ.get("PYTHONPATH")
        path = source if others is None else os.pathsep.join((source, others))
        self._process = subprocess.Popen(
            # -P: a file in the user's folder must not hide a module of the library
            [sys.executable, "-P", "-c", f"from {__name__} import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C interrupts the parent alone
        )
        self._queue = ThreadPoolExecutor(1)
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._queue.shutdown(cancel_futures=True)
        self._process.communicate()

    def submit(self, request: SolveRequest) -> Future[SolveAnswer]:
        """The future answer to a request; requests are served one after another."""
        # Pickled in this thread: that of the queue would often wait for the
        # interpreter lock.
        message = pickle.dumps(request, protocol=pickle.HIGHEST_PROTOCOL)
        return self._queue.submit(self._exchange, message, request.net_at)

    def _exchange(self, message: bytes, net_at: float) -> SolveAnswer:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        start_s = time.monotonic()
        wait_s = min(max(net_at - start_s, 0.0) + _GRACE_S, _MOST_WAIT_S)
        deadline = threading.Timer(wait_s, self._process.kill)
        deadline.start()
        try:
            stdin.write(message)
            stdin.flush()
            answer = pickle.load(stdout)
        except (BrokenPipeError, EOFError):
            status = self._process.wait()
            why = "perhaps out of memory"
            if time.monotonic() - start_s >= wait_s:
                why = f"since it had not answered after {wait_s:.0f} s"
            raise PlanError(
                f"the solver process ended with status {status}, {why}"
            ) from None
        finally:
            deadline.cancel()
        if isinstance(answer, Exception):
            raise answer
        return answer


def serve() -> None:
    """Answer requests from standard input on standard output, until end of file."""
    from numba.core.event import install_timer

    from meshwright.search.assignment.warm import warm  # also run as a program

    out, sys.stdout = sys.stdout.buffer, sys.stderr
    compilations = list[float]()
    # Loading code from numba's cache is no such event: its time differs between runs.
    with install_timer("numba:compile", compilations.append):
        warm(rounds=1)
    compiling_s = sum(compilations)
    meter = WorkMeter()
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = SolveAnswer(request.solve(meter), meter.read(), compiling_s)
            compiling_s = 0.0
        except Exception as error:  # noqa: BLE001  the parent process raises it
            answer = error
        pickle.dump(answer, out)
        out.flush()
