"""The result of a search: all trials, and those that no other dominates."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meshwright.errors import SearchError, did_you_mean
from meshwright.search.arrays import Floats
from meshwright.search.trials.costs.goals import Goals
from meshwright.search.trials.costs.hypervolume import hypervolume
from meshwright.search.trials.costs.pareto import front_of
from meshwright.search.trials.costs.trial import Trial

_ENDS = {
    "exhausted": "; the engine has no other candidate",
    "stalled": "; the engine proposes known candidates only",
    "interrupted": "; interrupted",
}
"""Why a search ended before its number of trials."""


@dataclass(frozen=True, slots=True)
class Front:
    """All trials of a search, and those that no other dominates.

    trials: every trial, in order. stopped: why the search ended: "trials", "exhausted",
        "stalled" or "interrupted". points: the feasible trials that no other dominates, by
        rising first cost.
    """

    goals: Goals
    trials: tuple[Trial, ...]
    stopped: str
    points: tuple[Trial, ...] = field(init=False)

    def __post_init__(self) -> None:
        whole = [trial for trial in self.trials if trial.is_feasible]
        costs = _matrix(whole, len(self.goals.objectives))
        chosen = [whole[i] for i in front_of(costs, np.zeros(len(whole)))]
        points = tuple(sorted(chosen, key=lambda trial: (trial.costs, trial.number)))
        object.__setattr__(self, "points", points)

    def best(self, **limits: float) -> Trial:
        """The point of best first objective, within limits of the others.

        limits: by objective, the largest value, or the least of one to maximise.
        """
        for name in limits:
            if name not in self.goals.objectives:
                hint = did_you_mean(name, self.goals.objectives)
                allowed = ", ".join(self.goals.objectives)
                raise SearchError(f"no objective {name!r}{hint}; there are {allowed}")
        for point in self.points:
            if all(self._keeps(point, name, limits[name]) for name in limits):
                return point
        raise SearchError(self._why_none(limits))

    def _keeps(self, point: Trial, name: str, limit: float) -> bool:
        value = point.values[name]
        return (
            value <= limit if self.goals.objectives[name] == "min" else value >= limit
        )

    def _why_none(self, limits: Mapping[str, float]) -> str:
        if not self.points:
            return self.why_empty()
        near: list[str] = []
        for name, limit in limits.items():
            is_min = self.goals.objectives[name] == "min"
            values = [point.values[name] for point in self.points]
            sign, best = ("<=", min(values)) if is_min else (">=", max(values))
            near.append(f"{name} {sign} {limit:g} (the best is {best:g})")
        return f"no point of the front has {' and '.join(near)}"

    def why_empty(self) -> str:
        """Why the front has no point: what excludes most of the trials."""
        if not self.trials:
            return "nothing was tried"
        reasons: Counter[str] = Counter()
        for trial in self.trials:
            if trial.reason:
                reasons[trial.reason] += 1
            else:
                reasons.update(self.goals.violations(trial.values).keys())
        if not reasons:
            return "no candidate was evaluated in whole"
        most, count = reasons.most_common(1)[0]
        return (
            f"none of {len(self.trials)} trials is feasible; "
            f"{count} of them failed for: {most}{self._nearest(most)}"
        )

    def _nearest(self, violated: str) -> str:
        """The value nearest to a limit that trials violate; "" for another reason."""
        measured = [trial.values for trial in self.trials if not trial.reason]
        beyond = [v for v in measured if violated in self.goals.violations(v)]
        if not beyond:
            return ""
        name, sign, _ = violated.rsplit(" ", 2)
        nearest = min if sign == "<=" else max
        return f" (the nearest is {nearest(float(v[name]) for v in beyond):.3g})"

    def costs_of(self, values: Mapping[str, float]) -> Floats:
        """A point given by objectives as costs; fails if one is missing."""
        for name in values:
            if name not in self.goals.objectives:
                hint = did_you_mean(name, self.goals.objectives)
                raise SearchError(f"the reference names {name!r}, no objective{hint}")
        missing = [name for name in self.goals.objectives if name not in values]
        if missing:
            raise SearchError(
                f"the reference {dict(values)} lacks {', '.join(missing)}"
            )
        return np.array(self.goals.costs(values), np.float64)

    def hypervolume(self, reference: Mapping[str, float]) -> float:
        """The volume that the front dominates, up to a reference of values by objective."""
        costs = _matrix(self.points, len(self.goals.objectives))
        return hypervolume(costs, self.costs_of(reference))

    def hypervolumes(
        self, reference: Mapping[str, float], numbers: Sequence[int]
    ) -> list[float]:
        """The hypervolume after each of these numbers of trials, which rise."""
        ends, found = self.costs_of(reference), list[float]()
        kept, begin = np.zeros((0, len(ends))), 0
        for number in numbers:
            new = [trial for trial in self.trials[begin:number] if trial.is_feasible]
            kept = np.concatenate([kept, _matrix(new, len(ends))])
            kept = kept[front_of(kept, np.zeros(len(kept)))]
            found.append(hypervolume(kept, ends))
            begin = number
        return found

    def to_json(self) -> str:
        """The front as JSON text; figures that are no number of JSON become null."""
        data = {
            "objectives": dict(self.goals.objectives),
            "constraints": dict(self.goals.constraints),
            "stopped": self.stopped,
            "trials": len(self.trials),
            "failed": sum(bool(trial.reason) for trial in self.trials),
            "points": [
                {
                    "trial": point.number,
                    "candidate": point.candidate,
                    "values": _finite(point.values),
                }
                for point in self.points
            ],
        }
        return json.dumps(data, indent=2, allow_nan=False)

    def __str__(self) -> str:
        if not self.points:
            return self.why_empty()
        failed = sum(bool(trial.reason) for trial in self.trials)
        head = f"{len(self.points)} points of {len(self.trials)} trials"
        head += f", {failed} of which failed" if failed else ""
        lines = [head + _ENDS.get(self.stopped, "")]
        for point in self.points:
            figures = (
                f"{name} {point.values[name]:.6g}" for name in self.goals.objectives
            )
            lines.append(f"  trial {point.number}: {'  '.join(figures)}")
        return "\n".join(lines)


def _matrix(trials: Sequence[Trial], num_costs: int) -> Floats:
    costs = np.array([trial.costs for trial in trials], np.float64)
    return costs.reshape(-1, num_costs)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
