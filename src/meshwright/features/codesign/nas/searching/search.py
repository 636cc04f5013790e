"""`nas.search`: the models of a space that no other dominates."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from meshwright.features.codesign.nas.searching.footprint import Footprint
from meshwright.features.codesign.nas.searching.front_page import write_front_page
from meshwright.search.trials import (
    Candidate,
    Front,
    Goals,
    Space,
    Study,
    Trial,
    TrialEngine,
    find_engine,
    run_trials,
)


@dataclass(frozen=True, slots=True)
class ModelFront:
    """The front of a search for a model, and the energy that the search took.

    front: all trials, and those that no other dominates.
    """

    front: Front
    footprint: Footprint
    proxies: Sequence[str] = field(default=())

    @property
    def points(self) -> tuple[Trial, ...]:
        """The trials of the front, by falling first objective."""
        return self.front.points

    def best(self, **limits: float) -> Trial:
        """The point of best first objective within limits, as `best(latency_s=0.008)`."""
        return self.front.best(**limits)

    def hypervolume(self, reference: Mapping[str, float]) -> float:
        """The volume that the front dominates, up to a reference by objective."""
        return self.front.hypervolume(reference)

    def report(self, path: str | PathLike[str]) -> None:
        """Write an HTML page: the front, hypervolume over trials, models, proxies."""
        write_front_page(self.front, path, self.footprint.lines(), self.proxies)

    def to_json(self) -> str:
        """The front as JSON text."""
        return self.front.to_json()

    def __str__(self) -> str:
        return "\n".join([str(self.front), *self.footprint.lines()])


def search(  # noqa: PLR0913  an option each
    space: Space,
    evaluate: Callable[..., Any],
    *,
    objectives: Mapping[str, str],
    constraints: Mapping[str, Any] | None = None,
    engine: str | TrialEngine = "nsga2",
    trials: int = 100,
    seed: int = 0,
    first: Sequence[Candidate] = (),
    journal: str | PathLike[str] | None = None,
    workers: int = 0,
    trial_seconds: float | None = None,
    on_trial: Callable[[Trial], None] = lambda trial: None,
    say: Callable[[str], None] = lambda text: None,
) -> ModelFront:
    """The front of `trials` candidates of a space.

    evaluate: from a candidate to a dict of figures, such as `Trained`.
    objectives: by figure, "max" or "min". constraints: the largest value by figure, or
        (least, largest).
    engine: a name in `nas.ENGINES`, or an engine with its parameters.
    first: candidates to try before all others, such as a baseline.
    journal: file of the trials; a search that was ended, or killed, goes on from it.
    workers: processes that evaluate; 0 for none. Their number does not change the result.
    trial_seconds: limit on the time of one evaluation; needs workers.

    >>> space = Space({"kernel": 3})
    >>> search(space, lambda c: {"time": c["kernel"]}, objectives={"time": "min"}).points
    (Trial(number=0, candidate={'kernel': 3}, fidelity=1.0, values={'time': 3}, ...
    """
    goals = Goals(objectives, constraints or {})
    study = Study(space, goals, find_engine(engine), seed, tuple(first))
    began = time.process_time()
    front = run_trials(
        study,
        evaluate,
        trials=trials,
        journal=journal,
        workers=workers,
        trial_seconds=trial_seconds,
        on_trial=on_trial,
        say=say,
    )
    here = time.process_time() - began
    proxies = getattr(evaluate, "proxy_names", ())
    return ModelFront(front, Footprint.of(front, here, workers), tuple(proxies))
