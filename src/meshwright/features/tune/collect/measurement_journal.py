"""A file of measurements, one per line, so that an interrupted collection can go on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshwright.errors import LearnedError
from meshwright.plain import JsonLines


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

    lines: JsonLines
    times: dict[tuple[int, int], int] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    default_ns: dict[tuple[int, int], int] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, header: Mapping[str, Any]) -> "MeasurementJournal":
        """Open a file of measurements, which is created if it does not exist.

        header: identifies the collection; an existing file must have the same header.
        """
        advice = "delete the file to measure anew"
        journal = cls(JsonLines(path, LearnedError, "measurement", advice))
        if not path.exists():
            journal.lines.add(header)
            return journal
        whole = journal.lines.read(lambda entry: entry)
        if not whole or whole[0] != header:
            raise LearnedError(
                f"{path} is of another collection: give the same program and options to "
                "go on, or delete it"
            )
        for entry in whole[1:]:
            journal._note(entry)
        return journal

    def add(
        self, pass_number: int, config: int, ns: int, default_ns: int | None = None
    ) -> None:
        default = {} if default_ns is None else {"default_ns": default_ns}
        self._write({"pass": pass_number, "config": config, "ns": ns, **default})

    def fail(self, config: int, error: str) -> None:
        self._write({"config": config, "error": error})

    def _write(self, entry: Mapping[str, Any]) -> None:
        self._note(entry)
        self.lines.add(entry)

    def _note(self, entry: Mapping[str, Any]) -> None:
        if "error" in entry:
            self.errors[entry["config"]] = entry["error"]
            return
        at = entry["pass"], entry["config"]
        self.times[at] = entry["ns"]
        if "default_ns" in entry:
            self.default_ns[at] = entry["default_ns"]
