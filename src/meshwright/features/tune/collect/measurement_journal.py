"""A file of measurements, one per line, so that an interrupted collection can go on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshwright.errors import LearnedError


@dataclass(frozen=True, slots=True)
class MeasurementJournal:
    """Measurements of one collection, in memory and in a file of JSON lines.

    A configuration is the index of a choice of layouts or tile sizes; all are timed in
    each of several passes.

    times: nanoseconds of one run, by (pass, configuration).
    errors: error messages, by configuration.
    default_ns: nanoseconds of the default configuration, if it was timed in turn with
        another one, by (pass, configuration).
    """

    path: Path
    times: dict[tuple[int, int], int] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    default_ns: dict[tuple[int, int], int] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, header: Mapping[str, Any]) -> "MeasurementJournal":
        """Open a file of measurements, which is created if it does not exist.

        header: identifies the collection; an existing file must have the same header.
        """
        journal = cls(path)
        if not path.exists():
            journal.write(header)
            return journal
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        whole = _entries(path, lines)
        if not whole or whole[0] != header:
            raise LearnedError(
                f"{path} is of another collection: give the same program and options to "
                "go on, or delete it"
            )
        path.write_text("".join(line for line in lines if line.endswith("\n")))
        for entry in whole[1:]:
            if "error" in entry:
                journal.errors[entry["config"]] = entry["error"]
                continue
            at = entry["pass"], entry["config"]
            journal.times[at] = entry["ns"]
            if "default_ns" in entry:
                journal.default_ns[at] = entry["default_ns"]
        return journal

    def add(
        self, pass_number: int, config: int, ns: int, default_ns: int | None = None
    ) -> None:
        self.times[pass_number, config] = ns
        entry = {"pass": pass_number, "config": config, "ns": ns}
        if default_ns is not None:
            self.default_ns[pass_number, config] = default_ns
            entry["default_ns"] = default_ns
        self.write(entry)

    def fail(self, config: int, error: str) -> None:
        self.errors[config] = error
        self.write({"config": config, "error": error})

    def write(self, entry: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def _entries(path: Path, lines: list[str]) -> list[Any]:
    """Entries of all complete lines; `LearnedError` names a line that is not JSON."""
    entries: list[Any] = []
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            break
        try:
            entries.append(json.loads(line))
        except ValueError as fault:
            raise LearnedError(
                f"line {number} of {path} is no measurement ({fault}): delete the file to "
                "measure anew"
            ) from None
    return entries
