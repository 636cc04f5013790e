"""Logged designs as arrays: from our CSV files, or from published TFRecord files."""

from __future__ import annotations

import csv
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.logs.application import read_application
from meshwright.features.codesign.accelerator.logs.prime_space import NAMES, VALUES
from meshwright.features.codesign.accelerator.offline.tfrecord import (
    parse_example,
    read_records,
)
from meshwright.search.arrays import Bools, Floats, Ints

_POSITIONS = tuple(
    {float(value): place for place, value in enumerate(values)}
    for values in VALUES.values()
)
"""By parameter, the position of each value."""

_FAULTS = (ValueError, KeyError, TypeError, struct.error)
"""Exceptions of a row or record that is corrupt."""

type Row = tuple[tuple[int, ...], float, float]
"""Positions of a design's values, milliseconds and mm2; NaN where there are none."""


@dataclass(frozen=True, slots=True, eq=False)
class ApplicationLog:
    """The logged designs of one application; N designs of G parameters.

    genes: positions of the values, [N, G]. runtime_ms: [N], NaN for an infeasible design.
    area_mm2: [N], NaN where the log has none. context: figures that describe the
        application, by name; empty if the logs have no description of it.
    num_skipped: corrupt records and rows.
    """

    name: str
    genes: Ints
    runtime_ms: Floats
    area_mm2: Floats
    context: Mapping[str, float] = field(default_factory=dict[str, float])
    num_skipped: int = 0

    @property
    def is_feasible(self) -> Bools:
        """Whether each design is feasible, [N]."""
        return ~np.isnan(self.runtime_ms)

    def within(self, area_mm2: float) -> ApplicationLog:
        """The log in which designs above an area are infeasible."""
        over = self.area_mm2 > area_mm2
        runtime_ms = np.where(over, np.nan, self.runtime_ms)
        return ApplicationLog(
            self.name, self.genes, runtime_ms, self.area_mm2, self.context,
            self.num_skipped,
        )  # fmt: skip


def find_logs(folder: Path) -> dict[str, list[Path]]:
    """The files of each application in a folder: NAME.csv, or NAME/*.tfrecord*."""
    if not folder.is_dir():
        raise AcceleratorError(
            f"{folder} is no folder of logs; `meshwright accelerator log` writes one"
        )
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("[!.]*.csv")):
        found.setdefault(path.stem, []).append(path)
    for path in sorted(folder.glob("[!.]*/[!.]*.tfrecord*")):
        found.setdefault(path.parent.name, []).append(path)
    if not found:
        raise AcceleratorError(
            f"{folder} has no logs; wanted NAME.csv or NAME/*.tfrecord, one NAME for each "
            "application"
        )
    return found


def read_application_log(
    folder: Path,
    name: str,
    files: Sequence[Path],
    on_rows: Callable[[int], None] = lambda count: None,
) -> ApplicationLog:
    """The logged designs of an application from its files; corrupt rows are skipped.

    on_rows: called with the number of rows so far, every 10,000 rows.
    """
    rows: list[Row] = []
    skipped = 0
    for path in files:
        read = _csv_rows if path.suffix == ".csv" else _tfrecord_rows
        for row in read(path):
            if row is None:
                skipped += 1
            else:
                rows.append(row)
                if len(rows) % 10_000 == 0:
                    on_rows(len(rows))
    described = folder / f"{name}.json"
    return ApplicationLog(
        name,
        np.array([genes for genes, _, _ in rows], np.int64).reshape(-1, len(NAMES)),
        np.array([runtime for _, runtime, _ in rows], np.float64),
        np.array([area for _, _, area in rows], np.float64),
        read_application(described) if described.exists() else {},
        skipped,
    )


def _csv_rows(path: Path) -> Iterator[Row | None]:
    """The rows of a file that `meshwright accelerator log` wrote; `None` if corrupt."""
    wanted = {*NAMES, "runtime_ms", "area_mm2", "infeasible"}
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        reader = csv.DictReader(file)
        if lacks := wanted - set(reader.fieldnames or ()):
            raise AcceleratorError(
                f"{path} is no log of designs: it lacks {', '.join(sorted(lacks))}"
            )
        for row in reader:
            try:
                values = [row[name] for name in NAMES]
                yield _row(
                    values, row["infeasible"], row["runtime_ms"], row["area_mm2"]
                )
            except _FAULTS:
                yield None


def _tfrecord_rows(path: Path) -> Iterator[Row | None]:
    """The records of a published file: param_1 to param_10, runtime, area, infeasible."""
    for payload in read_records(path):
        try:
            example = parse_example(payload) if payload is not None else {}
            values = [example[f"param_{i}"] for i in range(1, len(NAMES) + 1)]
            yield _row(
                values, example["infeasible"], example["runtime"], example["area"]
            )
        except _FAULTS:
            yield None


type _Cell = Any
"""A text, a number, or `None`."""


def _row(
    values: Sequence[_Cell], infeasible: _Cell, runtime: _Cell, area: _Cell
) -> Row:
    """A row of one form for both kinds of logs; raises one of `_FAULTS` if corrupt."""
    genes = tuple(
        positions[float(value)]
        for positions, value in zip(_POSITIONS, values, strict=True)
    )
    is_infeasible = {0.0: False, 1.0: True}[float(infeasible)]
    mm2 = math.nan if area in ("", None) else float(area)
    mm2 = mm2 if mm2 > 0 else math.nan
    if is_infeasible:
        return genes, math.nan, mm2
    milliseconds = float(runtime)
    if not 0 < milliseconds < math.inf:
        raise ValueError("a feasible design without a runtime")
    return genes, milliseconds, mm2
