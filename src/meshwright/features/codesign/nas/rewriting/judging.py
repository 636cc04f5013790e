"""The end of a search: its best networks are trained again, from seeds that it did not use.

One training, or three, tell networks apart only roughly, and of many that seem good some
are lucky.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meshwright.errors import NasError
from meshwright.features.codesign.nas.rewriting.lineages import (
    LINEAGES,
    ORIGINAL,
    acceptable,
)
from meshwright.features.codesign.nas.rewriting.search import RewriteProblem
from meshwright.search.trials import Batch, Goals, Study, Trial, run_trials
from meshwright.search.trials.engines.engine import Proposals
from meshwright.search.trials.space.coding import Draws

_WANTED, _MOST_JUDGED = 4, 24
"""Networks are trained again until so many are as good as the original, or so many were."""


@dataclass(frozen=True, slots=True)
class Judging:
    """The original, then networks in their order until enough are as good.

    networks: candidates, as draws. problem: what the draws are seeds for.
    """

    networks: tuple[tuple[int, ...], ...]
    problem: str

    def propose(self, draws: Draws) -> Proposals:
        (original,) = yield Batch(np.array([draws.coding.code_of(ORIGINAL)]))
        num_good = 0
        for each in self.networks:
            if num_good == _WANTED:
                return
            code = draws.coding.code_of({"draws": list(each)})
            (trial,) = yield Batch(np.array([code]))
            num_good += is_as_good(trial, original)


def is_as_good(trial: Trial, original: Trial) -> bool:
    """Whether a network's mean score is at least the original's."""
    return (
        trial.is_feasible
        and trial.values["validation"] >= original.values["validation"]
    )


def promising(trials: Sequence[Trial]) -> list[Trial]:
    """The candidates to train again, those that seem as good as the original first.

    Of those the cheapest come first, and of the others the best.
    """
    original, *rest = acceptable(trials)

    def rank(trial: Trial) -> tuple[bool, float]:
        loses = trial.values["score"] < original.values["score"]
        return loses, -trial.values["score"] if loses else trial.values["cost"]

    return sorted(rest, key=rank)[:_MOST_JUDGED]


def judge(
    problem: RewriteProblem,
    trials: Sequence[Trial],
    folder: Path | None,
    *,
    on_judged: Callable[[Trial], None],
    say: Callable[[str], None],
) -> Sequence[Trial]:
    """The original and the promising networks of a search, trained again.

    With a folder the judging goes on from its journal there; more trials of the search are
    judged anew.
    """
    networks = tuple(tuple(t.candidate["draws"]) for t in promising(trials))
    journal = folder and folder / f"judged_{len(trials) - 1}.jsonl"
    goals = Goals({"validation": "max", "cost": "min"}, {})
    found = run_trials(
        Study(LINEAGES, goals, Judging(networks, problem.identity), problem.seed),
        problem.judged_figures,
        trials=1 + len(networks),
        journal=journal,
        on_trial=on_judged,
        say=say,
    )
    if found.stopped == "interrupted":
        raise KeyboardInterrupt
    if not found.trials[0].is_feasible:
        reason = found.trials[0].reason
        raise NasError(f"the original does not train from other seeds: {reason}")
    return found.trials
