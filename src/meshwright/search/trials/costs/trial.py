"""The records of one trial: what is asked, what came of it, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meshwright.search.trials.costs.goals import Goals
from meshwright.search.trials.space.parts import Candidate


@dataclass(frozen=True, slots=True)
class Request:
    """A candidate to evaluate.

    number: the place among all trials of a search, from 0. fidelity: the share of a whole
        evaluation's effort, such as of its training steps.
    """

    number: int
    candidate: Candidate
    fidelity: float = 1.0


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """What came of an evaluation: figures by name, or the reason why there are none."""

    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate that was tried.

    values: figures by name, as the evaluation returned them; empty if it failed.
    costs: one per objective, to minimise; infinite if it failed.
    violation: sum of the violations of constraints; 0 if feasible, infinite if it failed.
    reason: why the trial failed; "" if it did not.
    seconds: CPU time of the evaluation; the limit if it was exceeded.
    """

    number: int
    candidate: Candidate
    fidelity: float
    values: Mapping[str, Any]
    costs: tuple[float, ...]
    violation: float
    reason: str
    seconds: float

    @classmethod
    def of(cls, request: Request, outcome: TrialOutcome, goals: Goals) -> Trial:
        """The trial of a request; figures that do not suit the goals make it fail."""
        reason = outcome.reason or goals.fault(outcome.values)
        costs = (math.inf,) * len(goals.objectives)
        violation = math.inf
        if not reason:
            costs = goals.costs(outcome.values)
            violation = sum(goals.violations(outcome.values).values())
        return cls(
            request.number,
            request.candidate,
            request.fidelity,
            outcome.values,
            costs,
            violation,
            reason,
            outcome.seconds,
        )

    @property
    def is_feasible(self) -> bool:
        """Whether it ended well, violates no constraint, and was evaluated in whole."""
        return self.violation == 0 and self.fidelity == 1
