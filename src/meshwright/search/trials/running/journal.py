"""The journal of a search: JSON lines, from which a search that was killed goes on.

The first line describes the study. Each trial has a line before it, with its candidate,
and one after it, with its figures. Random numbers and engines are not in it: a search that
goes on asks its engine again, and takes the outcomes of known trials from the journal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshwright.errors import SearchError
from meshwright.plain import JsonLines
from meshwright.search.trials.costs.trial import Request, TrialOutcome
from meshwright.search.trials.running.ask_tell import Study
from meshwright.search.trials.space.parts import Candidate

_FORMAT = "meshwright trials, version 1"


def header_of(study: Study, evaluate: Any = None) -> dict[str, Any]:
    """What decides which candidates are tried, and their figures, as plain data.

    evaluate: its `identity`, if it has one, is what its figures depend on besides the
        candidate.
    """
    evaluation = _identity_of(evaluate)
    return {
        "format": _FORMAT,
        "space": study.space.plain(),
        "objectives": dict(study.goals.objectives),
        "constraints": {
            name: list(limit) if isinstance(limit, tuple) else limit
            for name, limit in study.goals.constraints.items()
        },
        "engine": repr(study.engine),
        "seed": study.seed,
        "first": list(study.first),
        **({"evaluation": evaluation} if evaluation else {}),
    }


def _identity_of(evaluate: Any) -> dict[str, Any]:
    """The `identity` of an evaluation as JSON has it; {} if it has none."""
    identity = getattr(evaluate, "identity", {})
    try:
        if not isinstance(identity, Mapping):
            raise TypeError("no dict")
        return json.loads(json.dumps(dict(identity), allow_nan=False))  # pyright: ignore[reportUnknownArgumentType]
    except (TypeError, ValueError) as fault:
        raise SearchError(
            f"the identity of the evaluation is {identity!r:.80}, which a journal cannot "
            f"keep ({fault}); wanted a dict of numbers, texts and lists"
        ) from None


@dataclass(slots=True)
class TrialJournal:
    """The file of a search's trials; `open` it.

    dropped: the incomplete last line that was removed; "" if there was none.
    """

    lines: JsonLines
    dropped: str = ""
    _begun: dict[int, tuple[Candidate, float]] = field(
        default_factory=dict[int, tuple[Candidate, float]]
    )
    _ended: dict[int, TrialOutcome] = field(default_factory=dict[int, TrialOutcome])

    @classmethod
    def open(cls, path: Path, study: Study, evaluate: Any = None) -> TrialJournal:
        """The journal of a study, which goes on if the file exists.

        `SearchError` if the file is of another study, or of another evaluation.
        """
        advice = "give another file, or remove this one"
        journal = cls(JsonLines(path, SearchError, "journal entry", advice))
        header = header_of(study, evaluate)
        if path.exists() and path.stat().st_size:
            journal._read(header)
        if not path.exists() or not path.stat().st_size:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                journal.lines.add(header)
            except OSError as fault:
                what = f"cannot write a journal at {path}: {fault.strerror}"
                raise SearchError(what) from None
        return journal

    def _read(self, header: dict[str, Any]) -> None:
        path = self.lines.path
        size = path.stat().st_size
        entries = self.lines.read(lambda entry: dict(entry))
        if lost := size - path.stat().st_size:
            self.dropped = f"the last line of {path} was incomplete ({lost} bytes)"
        if entries:
            _check_header(entries[0], header, path)
        for number, entry in enumerate(entries[1:], 2):
            try:
                self._take(entry)
            except (KeyError, TypeError) as fault:
                what = f"line {number} of {path} is no journal entry ({fault!r})"
                raise SearchError(f"{what}; {self.lines.advice}") from None

    def _take(self, entry: dict[str, Any]) -> None:
        if "begin" in entry:
            self._begun[entry["begin"]] = entry["candidate"], entry["fidelity"]
        else:
            outcome = TrialOutcome(entry["values"], entry["reason"], entry["seconds"])
            self._ended[entry["end"]] = outcome

    def known(self, request: Request) -> TrialOutcome | None:
        """The recorded outcome of a request; `None` if it has not ended."""
        begun = self._begun.get(request.number)
        if begun is not None and begun != (request.candidate, request.fidelity):
            raise SearchError(
                f"trial {request.number} in {self.lines.path} is of {begun[0]}, but this "
                f"search tries {request.candidate} there: a condition of the space or the "
                f"engine has changed; {self.lines.advice}"
            )
        return self._ended.get(request.number)

    def begin(self, requests: Sequence[Request]) -> None:
        """Record that evaluations begin."""
        for request in requests:
            if request.number not in self._begun:
                entry = {"candidate": request.candidate, "fidelity": request.fidelity}
                self.lines.add({"begin": request.number, **entry})

    def end(self, request: Request, outcome: TrialOutcome) -> None:
        """Record what came of an evaluation."""
        entry = {
            "end": request.number,
            "values": dict(outcome.values),
            "reason": outcome.reason,
            "seconds": round(outcome.seconds, 6),
        }
        self.lines.add(entry)


def _check_header(entry: dict[str, Any], header: dict[str, Any], path: Path) -> None:
    """Fail if a journal's first line does not describe this study."""
    for name in (*header, *({"evaluation"} & set(entry) - set(header))):
        there, here = entry.get(name), header.get(name, {})
        if there == here or (name == "evaluation" and name not in entry):
            continue  # journals of earlier versions do not tell evaluations apart
        if name in ("space", "evaluation") and isinstance(there, dict):
            parts = [n for n in {**there, **here} if there.get(n) != here.get(n)]
            name, there, here = (
                f"{name}, in {', '.join(parts)}",
                {n: there.get(n) for n in parts},
                {n: here.get(n) for n in parts},
            )
        raise SearchError(
            f"{path} is the journal of another search: it has another {name}: "
            f"{there!r:.200}, but this one has {here!r:.200}; give another file, or the "
            "same space, seed, engine and evaluation"
        )
