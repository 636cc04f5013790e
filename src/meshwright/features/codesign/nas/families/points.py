"""Evaluated models of a family: scales, accuracy and latency, and CSV files of them."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from meshwright.errors import NasError
from meshwright.plain import read_text


@dataclass(frozen=True, slots=True)
class Point:
    """A model that was evaluated.

    depth, width: multipliers of the base model's layers and channels.
    resolution: pixels of an image's side, or a multiplier.
    accuracy: any number that is better if it is larger.
    """

    depth: float
    width: float
    resolution: float
    accuracy: float
    latency_ms: float

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, astuple(self))):
            raise NasError(f"wanted finite numbers, got {self}")
        if min(self.depth, self.width, self.resolution, self.latency_ms) <= 0:
            raise NasError(f"scales and latency are above 0; got {self}")

    @property
    def scales(self) -> tuple[float, float, float]:
        """Depth, width and resolution."""
        return self.depth, self.width, self.resolution


COLUMNS = tuple(field.name for field in fields(Point))


def read_points(path: Path) -> list[Point]:
    """The points of a CSV file with the columns `COLUMNS`, in any order."""
    lines = read_text(path, NasError, "a table of points").splitlines()
    rows = csv.DictReader(lines, skipinitialspace=True)
    found = rows.fieldnames = [name.strip() for name in rows.fieldnames or ()]
    missing = [name for name in COLUMNS if name not in found]
    if missing:
        raise NasError(
            f"{path} lacks the column {', '.join(missing)}; it has "
            f"{', '.join(found) or 'none'}; wanted {', '.join(COLUMNS)}"
        )
    points: list[Point] = []
    for row in rows:
        try:
            points.append(Point(*(_number(row[name], name) for name in COLUMNS)))
        except NasError as fault:
            raise NasError(f"{path}, line {rows.line_num}: {fault}") from None
    if not points:
        raise NasError(f"{path} has no points")
    return points


def _number(text: str | None, name: str) -> float:
    """A number of a table; `NasError` for anything else."""
    try:
        return float(text or "")
    except ValueError:
        raise NasError(f"{name} is {text or ''!r:.60}; wanted a number") from None


def base_resolution(points: Sequence[Point]) -> float | None:
    """The resolution of the point at depth and width 1; `None` if there is none."""
    return next((p.resolution for p in points if p.depth == p.width == 1), None)
