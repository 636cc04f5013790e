"""Meters of a search: they measure real time, or the time that counted work would take.

A search that ends by real time may give other results on a busy machine. A search that
counts its operations, and converts them to the seconds they take on a typical machine,
gives the same results on every machine. Real time is then only a safety net.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, Self

_NET, _LEAST_NET_S = 8.0, 120.0
"""Real seconds after which a search by counted work is cut short.

The first number is a multiple of the search's budget, the second is the least value in
seconds."""

_FREE_COMPILING, _MOST_COMPILING = 0.4, 0.5
"""Shares of a budget for compiling the solver on first use: free, and counted at most.

Compiling takes 15 s of CPU time. With a budget of 15 s or more, search and compilation
together then stay within 1.5 times the budget; smaller budgets keep half for the search."""


@dataclass(frozen=True, slots=True)
class Work:
    """A kind of operation that a search counts, and the seconds that one takes.

    The seconds are for a typical machine, measured by `python -m
    benchmarks search work_rates`. They determine how long a search takes, and need not be
    exact.
    """

    name: str
    seconds: float


class Meter(Protocol):
    """A clock for a search.

    It shows real seconds, or the seconds that the work counted so far would take.
    """

    def read(self) -> float:
        """The reading of the meter in seconds.

        Only differences of readings have a meaning.
        """
        ...

    def count(self, work: Work, units: float = 1.0) -> None:
        """Record that `units` operations of the kind `work` have just been done."""
        ...


@dataclass(frozen=True, slots=True)
class WallMeter:
    """A clock of real time; counted work does not change its reading."""

    def read(self) -> float:
        """Seconds on the system's clock."""
        return time.perf_counter()

    def count(self, work: Work, units: float = 1.0) -> None:
        """Do nothing: the real time that the work took has passed anyway."""


REAL_TIME = WallMeter()
"""The meter of searches that end by real time."""


@dataclass(slots=True)
class WorkMeter:
    """A meter that adds up the seconds of counted work, with a safety net in real time.

    end_s: reading in seconds at which the search has to end.
    clock: function that returns real seconds.
    net_at: reading of `clock` at which the search has taken too long. From then on the
        meter shows at least `end_s`, so that the search ends.
    is_cut: whether the safety net was reached. The result of the search then depends on
        the speed of the machine.
    """

    end_s: float = math.inf
    net_at: float = math.inf
    clock: Callable[[], float] = time.monotonic
    is_cut: bool = False
    _counted_s: float = 0.0
    _started: float = field(init=False)

    def __post_init__(self) -> None:
        self._started = self.clock()

    @classmethod
    def for_budget(
        cls, end_s: float, clock: Callable[[], float] = time.monotonic
    ) -> Self:
        """A meter for a search of `end_s` seconds of counted work.

        The safety net is at eight times as many real seconds, at least 120 s.
        """
        return cls(end_s, clock() + max(_NET * end_s, _LEAST_NET_S), clock)

    @property
    def real_s(self) -> float:
        """Real seconds since the meter was made."""
        return self.clock() - self._started

    def read(self) -> float:
        """Seconds of counted work so far.

        The reading is at least `end_s` once the safety net is reached.
        """
        if not self.is_cut and self.clock() >= self.net_at:
            self.is_cut = True
        if self.is_cut:
            self.advance(self.end_s)
        return self._counted_s

    def count(self, work: Work, units: float = 1.0) -> None:
        """Add the seconds of `units` operations of the kind `work` to the reading."""
        self._counted_s += work.seconds * units

    def count_compiling(self, seconds: float) -> None:
        """Count seconds of compiled code's first use, beyond what a budget leaves free."""
        beyond = max(0.0, seconds - _FREE_COMPILING * self.end_s)
        self._counted_s += min(beyond, _MOST_COMPILING * self.end_s)

    def advance(self, reading_s: float) -> None:
        """Raise the reading to that of another process.

        This process has waited for that process's work, which counts as its own.
        """
        self._counted_s = max(self._counted_s, reading_s)
