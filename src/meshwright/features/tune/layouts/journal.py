"""The journal of a search: a file with one verdict per line.

An interrupted search that is started again goes on from its journal.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshwright.errors import PlanError
from meshwright.features.tune.layouts.verdict import VERDICTS, Verdict, plain_verdict
from meshwright.plain import JsonLines


@dataclass(slots=True, eq=False)
class Journal:
    """The verdicts of a search, in memory and, if `path` is given, in a file.

    verdicts: verdicts by key, a text that names the judged program and how it was
        judged.
    """

    path: Path | None = None
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            self.verdicts.update(_lines(self.path).read(_read_verdict))

    def note(self, key: str, verdict: Verdict) -> None:
        """Record a verdict, in the file as well."""
        self.verdicts[key] = verdict
        if self.path is not None:
            _lines(self.path).add({"key": key, "verdict": plain_verdict(verdict)})


def _lines(path: Path) -> JsonLines:
    advice = "give the journal of a search, or a new file"
    return JsonLines(path, PlanError, "verdict", advice)


def _read_verdict(entry: Any) -> tuple[str, Verdict]:
    return entry["key"], VERDICTS.reader.read(Verdict, entry["verdict"])
