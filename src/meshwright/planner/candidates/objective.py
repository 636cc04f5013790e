"""The objective of a search: one figure of a plan, or several with weights.

A search minimizes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.errors import PlanError

OBJECTIVES = ("step_time", "memory", "cost", "energy", "carbon")
"""Names of the figures that an objective may contain.

On a given number of chips, cost, energy and carbon are proportional to the step time,
so that they rank plans in the same order.
"""

_LEAST = 1e-300
"""Number used in place of a figure of 0, which has no logarithm."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The weighted geometric mean of figures of a plan; smaller is better.

    weights: (name of the figure, weight) pairs. No weight is below 0, at least one is
        above.
    Only their ratios count, and units do not: with `step_time=1,memory=0.3`, 0.3 % less
    time is worth as much as 1 % less memory.
    """

    weights: tuple[tuple[str, float], ...]

    def __post_init__(self) -> None:
        for name, weight in self.weights:
            if name not in OBJECTIVES:
                raise PlanError(
                    f"objective is {name!r}; wanted one of {', '.join(OBJECTIVES)}, or "
                    "several with weights, as in step_time=1,memory=0.3"
                )
            if isinstance(weight, bool) or not isinstance(weight, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise PlanError(f"weight of {name!r} is {weight!r}; wanted a number")
            if not 0 <= weight < math.inf:
                raise PlanError(
                    f"weight of {name!r} is {weight}; wanted a finite number, 0 or above"
                )
        if not any(weight for _, weight in self.weights):
            raise PlanError("no weight of the objective is above 0; give at least one")
        if len(self.weights) == 1:  # one weight alone has no effect
            object.__setattr__(self, "weights", ((self.weights[0][0], 1.0),))

    @classmethod
    def of(cls, asked: str | Mapping[str, float]) -> Objective:
        """The objective given by a name, a mapping or `step_time=1,memory=0.3`.

        Raises `PlanError` for anything else.
        """
        if isinstance(asked, str):
            return cls(tuple(_read(asked)))
        if not isinstance(asked, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PlanError(
                f"objective is {asked!r}; wanted a name, or a mapping from names to "
                "weights"
            )
        return cls(tuple(asked.items()))

    def __call__(self, seconds: float, num_bytes: float) -> float:
        """The objective of a plan with this step time (seconds) and peak memory.

        Bytes are rounded down. All figures but memory are represented by the step time.
        """
        total, memory = sum(weight for _, weight in self.weights), float(int(num_bytes))
        mean = sum(
            weight
            / total
            * math.log(max(memory if name == "memory" else seconds, _LEAST))
            for name, weight in self.weights
        )
        return math.exp(mean)

    def __str__(self) -> str:
        if len(self.weights) == 1:
            return self.weights[0][0]
        return ",".join(f"{name}={_digits(weight)}" for name, weight in self.weights)


def _digits(weight: float) -> str:
    """The shortest text of a number that reads back as the same number."""
    return str(int(weight)) if weight == int(weight) else repr(weight)


def _read(text: str) -> list[tuple[str, float]]:
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, equals, weight = (each.strip() for each in part.partition("="))
        if name in weights:
            raise PlanError(f"{name!r} stands twice in objective {text!r}")
        try:
            weights[name] = float(weight) if equals else 1.0
        except ValueError:
            raise PlanError(
                f"cannot read {part!r} in objective {text!r}; wanted name=weight,..."
            ) from None
    return list(weights.items())
