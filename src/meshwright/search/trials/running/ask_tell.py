"""Ask and tell: an engine's batches without candidates that are known already."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meshwright.errors import SearchError
from meshwright.search.trials.costs.goals import Goals
from meshwright.search.trials.costs.trial import Request, Trial, TrialOutcome
from meshwright.search.trials.engines.engine import TrialEngine
from meshwright.search.trials.space.coding import Draws
from meshwright.search.trials.space.parts import Candidate, Space

type _Key = tuple[str, float]
"""A candidate as JSON text, and the fidelity of its evaluation."""

_PATIENCE = 50
"""Batches in a row of known candidates after which a search has stalled."""


@dataclass(frozen=True, slots=True)
class Study:
    """A search without its effort: all that decides which candidates it tries.

    first: candidates to try before all others, such as a baseline.
    measured: what candidates are measured with, as plain data, such as a digest of the
        program; a journal of trials that were measured otherwise is refused.
    """

    space: Space
    goals: Goals
    engine: TrialEngine
    seed: int = 0
    first: Sequence[Candidate] = field(default=())
    measured: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if not isinstance(self.space, Space):
            raise SearchError(f"space is {self.space!r:.60}; wanted a Space of parts")
        for candidate in self.first:
            self.space.encode(candidate, "a first candidate")
            if why := self.space.broken(candidate):
                what = f"the first candidate {candidate} is not allowed"
                raise SearchError(f"{what}: the condition {why} excludes it")


class AskTell:
    """A search whose trials the caller runs.

    `ask` gives the next candidates, and `tell` takes their figures in the same order. A
    candidate that was told before is not asked again.
    trials: all trials so far, in order. stopped: why `ask` gave nothing: "exhausted" if
        the engine ended, "stalled" if it proposed only what is known; "" before.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self.trials: list[Trial] = []
        self.stopped = ""
        rng = np.random.default_rng(study.seed)
        goals = study.goals
        self._draws = Draws(study.space, rng, len(goals.objectives), study.first)
        self._proposals = study.engine.propose(self._draws)
        self._known: dict[_Key, Trial] = {}
        self._keys: list[_Key] = []
        self._open: list[Request] = []
        self._answer: list[Trial] | None = None

    def ask(self, limit: int | None = None) -> list[Request]:
        """The next candidates, at most `limit`; none if the search has ended.

        A batch that `limit` cuts short is the last one.
        """
        if self._open:
            raise SearchError(
                "ask before tell: tell the figures of the last candidates"
            )
        for _ in range(_PATIENCE if not self.stopped else 0):
            try:
                # The first send starts the generator and has to be None.
                codes, fidelity = self._proposals.send(self._answer)  # pyright: ignore[reportArgumentType]
            except StopIteration:
                self.stopped = "exhausted"
                return []
            candidates = [self.study.space.decode(code) for code in codes.tolist()]
            self._keys = [(json.dumps(each), fidelity) for each in candidates]
            named = dict(zip(self._keys, candidates, strict=True))
            new = [key for key in named if key not in self._known]
            if new:
                first = len(self.trials)
                self._open = [
                    Request(first + i, named[key], fidelity)
                    for i, key in enumerate(new[:limit])
                ]
                self.stopped = "cut short" if len(self._open) < len(new) else ""
                return self._open
            self._answer = [self._known[key] for key in self._keys]
            if self._draws.is_exhausted:
                self.stopped = "exhausted"
                return []
        self.stopped = self.stopped or "stalled"
        return []

    def tell(self, outcomes: Sequence[TrialOutcome | Mapping[str, Any]]) -> list[Trial]:
        """The trials that the figures of the asked candidates make."""
        if len(outcomes) != len(self._open):
            wanted = f"{len(self._open)}, one per candidate"
            raise SearchError(f"told {len(outcomes)} outcomes; wanted {wanted}")
        new: list[Trial] = []
        keys = [key for key in dict.fromkeys(self._keys) if key not in self._known]
        for key, request, told in zip(keys, self._open, outcomes, strict=False):
            outcome = told if isinstance(told, TrialOutcome) else TrialOutcome(told)
            self._known[key] = trial = Trial.of(request, outcome, self.study.goals)
            new.append(trial)
        self.trials += new
        self._open = []
        if not self.stopped:
            self._answer = [self._known[key] for key in self._keys]
        return new
