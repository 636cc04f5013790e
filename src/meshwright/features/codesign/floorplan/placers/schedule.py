"""What a placer does when: its stages, temperatures, and how much of the budget is used."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshwright.errors import FloorplanError
from meshwright.search.arrays import Floats


@dataclass(frozen=True, slots=True)
class PlacerStage:
    """One stage of a placer.

    share: of the budget. hot, cold: first and last temperature, as multiples of the unit;
        both 0 for descent, which accepts gains only.
    keeps_places: whether the walkers go on from where they are, not from the best
        placement.
    source: what proposes whole placements in place of moves, if anything does.
    starts: source of placements at which the walkers begin, where those are better.
    meetings: shares of the stage at which the worse walkers go on from the best one.
    """

    name: str
    share: float
    hot: float = 0.0
    cold: float = 0.0
    keeps_places: bool = False
    source: str = ""
    starts: str = ""
    meetings: tuple[float, ...] = ()

    def heat(self, begin: float, end: float, count: int) -> Floats:
        """Temperatures of `count` moves between two shares of the stage."""
        shares = np.linspace(begin, min(end, 1.0), count, endpoint=False)
        if self.hot == 0:
            return np.zeros(count)
        return self.hot * (self.cold / self.hot) ** shares


_HOT, _MILD, _WARM, _COLD = 0.4, 0.1, 0.03, 1e-3
"""Temperatures in units of the proxy per block that moves.

At the first nearly all moves are accepted, at the last hardly any (measured on Ariane133
on NanGate45). The third keeps most of a good start, the second its large shape.
"""

_MEETINGS = (0.6, 0.75, 0.9)

_STAGES = {
    "auto": (
        PlacerStage(
            "annealing",
            0.92,
            _MILD,
            _COLD,
            keeps_places=True,
            starts="analytic",
            meetings=_MEETINGS,
        ),
        PlacerStage("descent", 0.08),
    ),
    "anneal": (
        PlacerStage(
            "annealing", 1.0, _HOT, _COLD, keeps_places=True, meetings=_MEETINGS
        ),
    ),
    "descent": (PlacerStage("descent", 1.0),),
    "analytic": (
        PlacerStage("analytic", 0.2, source="analytic"),
        PlacerStage("descent", 0.8),
    ),
    "policy": (
        PlacerStage("policy", 0.9, source="policy"),
        PlacerStage("descent", 0.1),
    ),
}
"""Stages by method."""

METHODS = tuple(_STAGES)


_SHORT_S = 30.0
"""Seconds below which an analytic placement, which is compiled first, does not pay."""


def stages_of(
    method: str, has_start: bool, seconds: float | None = None
) -> tuple[PlacerStage, ...]:
    """The stages of a method; from a start that the user gives, none begins anew.

    seconds: the budget, if it is one of time.
    """
    if method not in _STAGES:
        raise FloorplanError(
            f"method is {method!r}; wanted one of {', '.join(METHODS)}"
        )
    if has_start and method in ("analytic", "policy"):
        raise FloorplanError(
            f"method {method!r} makes its own start; leave `start` out, or go on from it "
            "with another method"
        )
    if has_start and method != "descent":
        return (
            PlacerStage("annealing", 0.9, _WARM, _COLD, meetings=_MEETINGS),
            PlacerStage("descent", 0.1),
        )
    if method == "auto" and seconds is not None and seconds < _SHORT_S:
        annealing = replace(_STAGES["anneal"][0], share=0.92)
        return annealing, _STAGES["auto"][-1]
    return _STAGES[method]


@dataclass(frozen=True, slots=True)
class Limit:
    """The budget of a placer: evaluated moves of each walker, or else seconds."""

    seconds: float
    evaluations: int | None

    def __post_init__(self) -> None:
        if self.evaluations is not None and self.evaluations < 1:
            raise FloorplanError(
                f"evaluations is {self.evaluations}; wanted a whole number of 1 or more"
            )
        if self.evaluations is None and not self.seconds > 0:
            raise FloorplanError(
                f"the search may take {self.seconds:g} s; wanted more than 0"
            )

    def used(self, seconds: float, evaluations: int) -> float:
        """The share of the budget that is used up."""
        if self.evaluations is not None:
            return evaluations / self.evaluations
        return seconds / self.seconds


class StopWatch:
    """Seconds of a search by a clock, those of earlier runs that it resumes included."""

    def __init__(self, clock: Callable[[], float], before: float = 0.0) -> None:
        self._clock = clock
        self._begin = clock() - before

    @property
    def seconds(self) -> float:
        return self._clock() - self._begin


def stage_at(stages: Sequence[PlacerStage], used: float) -> tuple[int, float, float]:
    """The stage at a share of the budget, its share that is over, and its length."""
    begin = 0.0
    for index, stage in enumerate(stages):
        if used < begin + stage.share or index == len(stages) - 1:
            return index, (used - begin) / stage.share, stage.share
        begin += stage.share
    raise AssertionError("a method has at least one stage")
