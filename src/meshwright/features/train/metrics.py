"""Metrics of a training run, written per step as CSV and for TensorBoard."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TextIO

from meshwright.errors import RecipeError, import_extra
from meshwright.features.train.recipes.recipe import OutputPart

Row = Mapping[str, float]
"""Metrics of one step by name: "loss", "evaluation_loss", "step_s" and others."""


class Writer(Protocol):
    """A file or service into which the metrics of steps are written."""

    def write(self, step: int, row: Row) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


def open_writers(part: OutputPart, folder: Path, start: int) -> list[Writer]:
    """The metric writers that a recipe asks for.

    start: the step after which the run resumes; metrics of later steps are deleted.
    """
    writers: list[Writer] = []
    if part.csv:
        writers.append(CsvWriter(folder / "metrics.csv", start))
    if part.tensorboard:
        writers.append(TensorBoardWriter(folder / "tensorboard", start))
    return writers


COLUMNS: tuple[str, ...] = (
    "step", "loss", "evaluation_loss", "learning_rate", "gradient_norm", "parameter_norm",
    "step_s", "mfu", "tokens_per_s", "examples_per_s",
)  # fmt: skip


class CsvWriter:
    """A CSV file with a row for each step; metrics that a step does not have are empty."""

    def __init__(self, path: Path, start: int) -> None:
        """Open the file, and delete its rows after step `start`.

        The new file replaces the old one at once, so that a killed process leaves one of
        them.
        """
        kept = [row for row in read_csv(path) if int(row["step"]) <= start]
        fresh = path.with_name(f"{path.name}.new")
        with fresh.open("w", newline="", encoding="utf-8") as file:
            rows = _rows_of(file)
            rows.writeheader()
            rows.writerows(kept)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        self._file = path.open("a", newline="", encoding="utf-8")
        self._rows = _rows_of(self._file)

    def write(self, step: int, row: Row) -> None:
        """Append a row; floats are written with all digits, so that reading is exact."""
        texts = {name: repr(float(value)) for name, value in row.items()}
        self._rows.writerow({"step": str(step), **texts})
        self._file.flush()

    def flush(self) -> None:
        """Do nothing, since each row is flushed."""

    def close(self) -> None:
        """Close the CSV file."""
        self._file.close()


def _rows_of(file: TextIO) -> csv.DictWriter[str]:
    return csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file that `CsvWriter` wrote; none if there is no file.

    An incomplete last row, which a killed process may leave, is left out.
    """
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [row for row in rows if row["step"].isdigit() and None not in row.values()]


class TensorBoardWriter:
    """Metrics of steps written as event files for TensorBoard.

    Events are written by the calling thread: tensorboardX's `SummaryWriter` has a queue,
    which its `flush` does not wait for.
    """

    def __init__(self, folder: Path, start: int) -> None:
        """Open a new event file; TensorBoard then hides older events after step `start`."""
        need = "output.tensorboard needs tensorboardX"
        import_extra("tensorboardX", need, "train", RecipeError)
        events: Any = import_module("tensorboardX.proto.event_pb2")
        files: Any = import_module("tensorboardX.event_file_writer")
        self._event = events.Event
        self._scalar: Any = import_module("tensorboardX.summary").scalar
        folder.mkdir(parents=True, exist_ok=True)
        self._writer = files.EventsWriter(str(folder / "events"))
        begun = events.SessionLog(status=events.SessionLog.START)
        self._add(start + 1, file_version="brain.Event:2")
        self._add(start + 1, session_log=begun)

    def _add(self, step: int, **content: Any) -> None:
        event = self._event(step=step, wall_time=time.time(), **content)
        self._writer.write_event(event)

    def write(self, step: int, row: Row) -> None:
        """Add the metrics of a step."""
        for name, value in row.items():
            self._add(step, summary=self._scalar(name, value))

    def flush(self) -> None:
        """Write the buffered events to the file."""
        self._writer.flush()

    def close(self) -> None:
        """Write the buffered events, and close the file."""
        self._writer.close()
