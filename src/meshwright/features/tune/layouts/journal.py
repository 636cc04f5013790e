"""The journal of a search: a file with one verdict per line.

An interrupted search that is started again goes on from its journal.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from meshwright.errors import PlanError
from meshwright.features.tune.layouts.verdict import Verdict


@dataclass(slots=True, eq=False)
class Journal:
    """The verdicts of a search, in memory and, if `path` is given, in a file.

    verdicts: verdicts by key, a text that names the judged program and how it was
        judged.
    An incomplete last line of the file, left by an interruption, is dropped.
    """

    path: Path | None = None
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            for number, line in enumerate(self._whole_lines(self.path), 1):
                try:
                    entry = json.loads(line)
                    verdict = Verdict.from_json(entry["verdict"])
                except (ValueError, KeyError, TypeError) as error:
                    raise PlanError(
                        f"line {number} of {self.path} is no verdict ({error}); give the "
                        "journal of a search, or a new file"
                    ) from None
                self.verdicts[entry["key"]] = verdict

    def _whole_lines(self, path: Path) -> Iterator[str]:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PlanError(f"cannot read a journal from {path}: {error}") from None
        whole, _, rest = text.rpartition("\n")
        if rest:
            path.write_text(whole + "\n" if whole else "", encoding="utf-8")
        for number, line in enumerate(whole.splitlines(), 1):
            if not line.startswith('{"key": '):
                raise PlanError(
                    f"line {number} of {path} is no verdict; give the journal of a search, "
                    "or a new file"
                )
            yield line

    def note(self, key: str, verdict: Verdict) -> None:
        """Record a verdict, in the file as well."""
        self.verdicts[key] = verdict
        if self.path is not None:
            line = json.dumps({"key": key, "verdict": verdict.to_json()})
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
