"""The loop of a search by trials: ask an engine, evaluate, record, tell."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, nullcontext
from os import PathLike
from pathlib import Path
from typing import Any

from meshwright.errors import SearchError
from meshwright.search.trials.costs.front import Front
from meshwright.search.trials.costs.trial import Request, Trial, TrialOutcome
from meshwright.search.trials.running.ask_tell import AskTell, Study
from meshwright.search.trials.running.evaluate import Evaluate
from meshwright.search.trials.running.journal import TrialJournal
from meshwright.search.trials.running.workers import WorkerPool, run_here

type OnTrial = Callable[[Trial], None]
"""Called with each trial, in order, known ones of a journal included."""


def run_trials(  # noqa: PLR0913  an option each
    study: Study,
    evaluate: Evaluate,
    *,
    trials: int,
    journal: str | PathLike[str] | None = None,
    workers: int = 0,
    trial_seconds: float | None = None,
    on_trial: OnTrial = lambda trial: None,
    say: Callable[[str], None] = lambda text: None,
) -> Front:
    """Search until `trials` candidates were tried, or the engine has none left.

    journal: file of the trials; if it exists, the search goes on from it. Ctrl-C ends the
        search like the limit.
    workers: processes that evaluate; 0 evaluates in this one. The number does not change
        the result.
    trial_seconds: limit on the time of one evaluation; needs workers.
    say: gets remarks, such as on a line of the journal that was dropped.
    """
    if not callable(evaluate):
        wanted = "a function from a candidate to a dict of figures"
        raise SearchError(f"evaluate is {evaluate!r:.60}; wanted {wanted}")
    _check(trials, workers, trial_seconds)
    asker = AskTell(study)
    book = (
        None if journal is None else TrialJournal.open(Path(journal), study, evaluate)
    )
    if book is not None and book.dropped:
        say(f"{book.dropped}: its trial is repeated")
    stopped = "trials"
    pool = WorkerPool(evaluate, workers, trial_seconds) if workers else None
    with closing(pool) if pool is not None else nullcontext():
        run_fn = pool.run if pool is not None else _here(evaluate)
        try:
            while len(asker.trials) < trials:
                requests = asker.ask(trials - len(asker.trials))
                if not requests:
                    stopped = asker.stopped
                    break
                for trial in asker.tell(_outcomes(requests, book, run_fn)):
                    on_trial(trial)
        except KeyboardInterrupt:
            stopped = "interrupted"
    return Front(study.goals, tuple(asker.trials), stopped)


type _Run = Callable[
    [list[Request], Callable[[Request, TrialOutcome], None]], list[TrialOutcome]
]


def _here(evaluate: Evaluate) -> _Run:
    return lambda requests, on_outcome: run_here(evaluate, requests, on_outcome)


def _outcomes(
    requests: list[Request], book: TrialJournal | None, run_fn: _Run
) -> list[TrialOutcome]:
    """The outcomes of requests, from the journal where it has them."""
    if book is None:
        return run_fn(requests, lambda request, outcome: None)
    known = {request.number: book.known(request) for request in requests}
    rest = [request for request in requests if known[request.number] is None]
    book.begin(rest)
    new = iter(run_fn(rest, book.end) if rest else ())
    return [known[request.number] or next(new) for request in requests]


def _check(trials: Any, workers: Any, trial_seconds: float | None) -> None:
    if type(trials) is not int or trials < 1:
        raise SearchError(f"trials is {trials!r}; wanted a whole number above 0")
    if type(workers) is not int or workers < 0:
        raise SearchError(f"workers is {workers!r}; wanted a whole number, 0 for none")
    if trial_seconds is not None and not trial_seconds > 0:
        raise SearchError(
            f"trial_seconds is {trial_seconds!r}; wanted a number above 0"
        )
    if trial_seconds is not None and not workers:
        raise SearchError(
            "a limit on a trial's seconds needs worker processes: workers=1"
        )
