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
    rows = csv.DictReader(read_text(path, NasError, "a table of points").splitlines())
    found = rows.fieldnames or ()
    missing = [name for name in COLUMNS if name not in found]
    if missing:
        raise NasError(
            f"{path} lacks the column {', '.join(missing)}; it has {', '.join(found)}; "
            f"wanted {', '.join(COLUMNS)}"
        )
    points: list[Point] = []
    for number, row in enumerate(rows, start=2):
        try:
            points.append(Point(*(float(row[name]) for name in COLUMNS)))
        except (TypeError, ValueError) as fault:
            raise NasError(f"{path}, line {number}: {fault}") from None
    if not points:
        raise NasError(f"{path} has no points")
    return points


def base_resolution(points: Sequence[Point]) -> float | None:
    """The resolution of the point at depth and width 1; `None` if there is none."""
    return next((p.resolution for p in points if p.depth == p.width == 1), None)
