"""Integer programs solved in a process beside, while this one prices and simulates.

A process, not a thread: what prepares programs holds the interpreter all the time.
"""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from meshwright.errors import PlanError
from meshwright.planner.solve.optimum import Optimum, Pricer, find_optimum

_LEAST_S = 1.0
"""Seconds that a question has which had to wait for longer than it may take."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be solved; see `find_optimum`.

    seconds: at most, counted from when it is `asked`, since others may have to be answered
    before it; with `turns` the answer is there before, as a rule.
    """

    pricer: Pricer
    limit: float | None
    seconds: float
    turns: int
    starts: tuple[tuple[int, ...], ...] = ()
    worthless: float = math.inf
    asked: float = field(default_factory=time.monotonic)

    def answer(self) -> Optimum:
        """The cheapest choices found."""
        until = max(self.asked + self.seconds, time.monotonic() + _LEAST_S)
        return find_optimum(
            self.pricer, self.limit, self.turns, time.monotonic, until, self.starts,
            self.worthless,
        )  # fmt: skip


class Beside:
    """The process; it ends with the `with` block, whatever it is at."""

    def __enter__(self) -> Self:
        source = str(Path(__file__).parents[3])
        others = os.environ.get("PYTHONPATH")
        path = source if others is None else os.pathsep.join((source, others))
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is for us alone
        )
        self._turn = ThreadPoolExecutor(1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._turn.shutdown(cancel_futures=True)
        self._process.communicate()

    def ask(self, question: Question) -> Future[Optimum]:
        """The answer, once it is there; one question is answered after the other."""
        # Here, not in its thread, which would wait for the interpreter at every array.
        told = pickle.dumps(question, protocol=pickle.HIGHEST_PROTOCOL)
        return self._turn.submit(self._ask, told)

    def _ask(self, told: bytes) -> Optimum:
        to, back = self._process.stdin, self._process.stdout
        assert to is not None
        assert back is not None
        try:
            to.write(told)
            to.flush()
            answer = pickle.load(back)
        except (BrokenPipeError, EOFError):
            status = self._process.wait()
            raise PlanError(
                f"the solver's process ended with status {status}; out of memory, perhaps"
            ) from None
        if isinstance(answer, Exception):
            raise answer
        return answer


def serve() -> None:
    """Answer questions from standard input on standard output until there are no more."""
    from meshwright.search.assignment.warm import warm  # also run as a program

    out, sys.stdout = sys.stdout.buffer, sys.stderr
    warm(rounds=1)
    while True:
        try:
            question = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = question.answer()
        except Exception as error:  # noqa: BLE001  it is raised where it was asked
            answer = error
        pickle.dump(answer, out)
        out.flush()
