"""Meters of a search: counted work, which is equal on every machine, and real time.

A search that ends by real time may give other results on a busy machine. A search that
counts its work, in seconds that the work takes on a typical machine, gives the same
results on every machine; real time is only its safety net.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, Self

_NET, _LEAST_NET_S = 8.0, 120.0
"""Real seconds after which a search is cut short, as a multiple of its budget, and at
least. The first search on a host compiles the solver for up to a minute, which counts
as no work."""


@dataclass(frozen=True, slots=True)
class Work:
    """A kind of work, and the seconds that one unit of it takes on a typical machine.

    `python -m benchmarks.work_rates` measures the seconds. They determine how long a
    search takes, and need not be exact.
    """

    name: str
    seconds: float


class Meter(Protocol):
    """A clock, which may show seconds of counted work instead of real seconds."""

    def read(self) -> float:
        """Seconds since the meter's start."""
        ...

    def count(self, work: Work, units: float = 1.0) -> None:
        """Record units of work that have just been done."""
        ...


@dataclass(frozen=True, slots=True)
class WallMeter:
    """A clock of real time; counted work does not change its reading."""

    def read(self) -> float:
        """Seconds on the system's clock."""
        return time.perf_counter()

    def count(self, work: Work, units: float = 1.0) -> None:
        """Do nothing, since real time passes by itself."""


REAL_TIME = WallMeter()
"""The meter of searches that end by real time."""


@dataclass(slots=True)
class WorkMeter:
    """Seconds of counted work, with a safety net in real time.

    end_s: reading at which the search has to end. clock: real seconds. net_at: reading
    of `clock` at which the search has taken too long; from then on the meter shows at
    least `end_s`. is_cut: whether this has happened, so that the result of the search
    depends on the speed of the machine.
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
        """A meter for `end_s` seconds of work, with a safety net in real time."""
        return cls(end_s, clock() + max(_NET * end_s, _LEAST_NET_S), clock)

    @property
    def real_s(self) -> float:
        """Real seconds since the meter was made."""
        return self.clock() - self._started

    def read(self) -> float:
        """Seconds of counted work; at least `end_s` once the safety net is reached."""
        if not self.is_cut and self.clock() >= self.net_at:
            self.is_cut = True
        if self.is_cut:
            self.advance(self.end_s)
        return self._counted_s

    def count(self, work: Work, units: float = 1.0) -> None:
        """Add so many units of work."""
        self._counted_s += work.seconds * units

    def advance(self, reading_s: float) -> None:
        """Advance to the reading of another process that this one has waited for."""
        self._counted_s = max(self._counted_s, reading_s)
