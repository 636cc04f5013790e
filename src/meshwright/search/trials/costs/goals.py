"""Objectives and constraints: figures by name become costs to minimise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.errors import SearchError, did_you_mean

type Limit = float | tuple[float | None, float | None]
"""The largest value of a figure, or the least and the largest, of which one is `None`."""


@dataclass(frozen=True, slots=True)
class Goals:
    """What a search is for.

    objectives: by name of a figure, "min" or "max". constraints: limits by name.

    >>> goals = Goals({"accuracy": "max", "time_s": "min"}, {"bytes": 100})
    >>> goals.costs({"accuracy": 0.9, "time_s": 2.0, "bytes": 150})
    (-0.9, 2.0)
    >>> goals.violations({"accuracy": 0.9, "time_s": 2.0, "bytes": 150})
    {'bytes <= 100': 0.5}
    """

    objectives: Mapping[str, str]
    constraints: Mapping[str, Limit]

    def __post_init__(self) -> None:
        if not isinstance(self.objectives, Mapping) or not self.objectives:
            wanted = 'a dict such as {"accuracy": "max", "latency_s": "min"}'
            raise SearchError(f"objectives is {self.objectives!r:.60}; wanted {wanted}")
        for name, way in self.objectives.items():
            if way not in ("min", "max"):
                hint = did_you_mean(way, ("min", "max"))
                raise SearchError(
                    f"objective {name!r} is {way!r}; wanted min or max{hint}"
                )
        if not isinstance(self.constraints, Mapping):
            wanted = 'a dict such as {"memory_bytes": 2**30}'
            raise SearchError(
                f"constraints is {self.constraints!r:.60}; wanted {wanted}"
            )
        for name, limit in self.constraints.items():
            ends = [end for end in _ends(limit) if end is not None]
            if not ends or not all(isinstance(e, int | float) and e == e for e in ends):
                wanted = "its largest value, or (least, largest) with None for no limit"
                raise SearchError(
                    f"constraint {name!r} is {limit!r:.60}; wanted {wanted}"
                )

    @property
    def figures(self) -> tuple[str, ...]:
        """The names of all figures that an evaluation has to return."""
        return tuple(dict.fromkeys((*self.objectives, *self.constraints)))

    def fault(self, values: Mapping[str, Any]) -> str:
        """What is wrong with the figures of an evaluation; "" if nothing is."""
        for name in self.figures:
            if name not in values:
                given = ", ".join(map(str, values)) or "nothing"
                what = "objective" if name in self.objectives else "constrained figure"
                return f"the evaluation lacks the {what} {name!r}; it returned {given}"
            value = values[name]
            if isinstance(value, bool) or not isinstance(value, int | float):
                return f"{name} is {value!r:.60}; wanted a number"
            if math.isnan(value) or (name in self.objectives and math.isinf(value)):
                return f"{name} is {value}"
        return ""

    def costs(self, values: Mapping[str, Any]) -> tuple[float, ...]:
        """One cost to minimise per objective, in order."""
        return tuple(
            float(values[name]) if way == "min" else -float(values[name])
            for name, way in self.objectives.items()
        )

    def violations(self, values: Mapping[str, Any]) -> dict[str, float]:
        """By how much each constraint is violated, relative to its limit."""
        over: dict[str, float] = {}
        for name, limit in self.constraints.items():
            least, largest = _ends(limit)
            value = float(values[name])
            if largest is not None and value > largest:
                over[f"{name} <= {largest:g}"] = (value - largest) / (abs(largest) or 1)
            if least is not None and value < least:
                over[f"{name} >= {least:g}"] = (least - value) / (abs(least) or 1)
        return over


def _ends(limit: Limit) -> tuple[float | None, float | None]:
    if isinstance(limit, tuple | list):
        return (limit[0], limit[1]) if len(limit) == 2 else (None, None)
    return None, limit
