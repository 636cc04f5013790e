"""Decisions about a unit's calls, and the compilations that tell what comes of them."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from meshwright.features.policies.compiler.replay import CallSite, Decisions


@dataclass(frozen=True, slots=True)
class Sized:
    """Text bytes of a unit under decisions, and the calls that were inlined.

    functions: bytes by function, of compilations that measure them.
    """

    text_bytes: int
    inlined: frozenset[CallSite]
    functions: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class InliningState:
    """Decisions, who decides about other calls, and what comes of them."""

    decisions: Decisions
    fallback: str
    sized: Sized

    @property
    def size(self) -> int:
        """Text bytes of the unit."""
        return self.sized.text_bytes


SizeFn = Callable[[Decisions, str, bool], Sized]
"""From decisions, the fallback of a replay, and whether to measure each function."""

_Key = tuple[frozenset[tuple[CallSite, bool]], str, bool]


@dataclass(slots=True)
class Compilations:
    """Compilations of one unit, each made once.

    size_fn: compiles; its calls may run at once. end_at: `time.monotonic()` after which
        no compilation begins. number: those made so far.
    begun: when the first one could begin.
    """

    size_fn: SizeFn
    pool: Executor
    end_at: float
    number: int = 0
    begun: float = field(default_factory=time.monotonic)
    _known: dict[_Key, Sized] = field(default_factory=dict[_Key, Sized])

    @property
    def is_over(self) -> bool:
        """Whether the time has ended."""
        return time.monotonic() >= self.end_at

    def has_time_for(self, number: int) -> bool:
        """Whether so many compilations can be made, at the pace until now."""
        now = time.monotonic()
        return number * (now - self.begun) <= (self.end_at - now) * max(1, self.number)

    def state(self, decisions: Decisions, fallback: str) -> InliningState:
        """A state that is compiled whatever the time."""
        key = (frozenset(decisions.items()), fallback, False)
        if key not in self._known:
            self._known[key] = self.size_fn(decisions, fallback, False)
            self.number += 1
        return InliningState(decisions, fallback, self._known[key])

    def states(
        self, many: Sequence[Decisions], fallback: str, *, by_function: bool = False
    ) -> list[InliningState]:
        """States of several decisions, compiled at once; fewer if time is over."""
        keys = [(frozenset(each.items()), fallback, by_function) for each in many]
        jobs = {
            key: self.pool.submit(self._timely, each, fallback, by_function)
            for key, each in zip(keys, many, strict=True)
            if key not in self._known
        }
        for key, job in jobs.items():
            sized = job.result()
            if sized is not None:
                self._known[key] = sized
                self.number += 1
        return [
            InliningState(each, fallback, self._known[key])
            for key, each in zip(keys, many, strict=True)
            if key in self._known
        ]

    def _timely(
        self, decisions: Decisions, fallback: str, by_function: bool
    ) -> Sized | None:
        return None if self.is_over else self.size_fn(decisions, fallback, by_function)
