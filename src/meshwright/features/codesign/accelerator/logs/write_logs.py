"""Logs of designs of a space: simulated or refused, one CSV file for each application."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from meshwright.errors import AcceleratorError, MachineError
from meshwright.features.codesign.accelerator.logs.prime_space import (
    AREA_CAP_MM2,
    NAMES,
    design_of,
    draw,
    misfit_of,
    values_of,
)
from meshwright.features.codesign.accelerator.simulate.evaluate import evaluate_workload
from meshwright.features.codesign.accelerator.workload.layers import Workload

COLUMNS = (*NAMES, "runtime_ms", "area_mm2", "infeasible", "reason")
"""Columns of a log: the values of the parameters, then what was found.

runtime_ms and area_mm2 are empty for a design that the template does not have."""


@dataclass(frozen=True, slots=True)
class LoggedDesign:
    """One row of a log: a design by the positions of its values, and what it takes.

    runtime_ms: `None` if it is infeasible. reason: why it is; "" if it is feasible.
    """

    genes: tuple[int, ...]
    runtime_ms: float | None
    area_mm2: float | None
    reason: str

    @property
    def is_feasible(self) -> bool:
        """Whether the design was simulated, and is within the caps."""
        return self.runtime_ms is not None


def simulate_design(
    genes: tuple[int, ...], workload: Workload, area_cap_mm2: float = AREA_CAP_MM2
) -> LoggedDesign:
    """What a design of the space takes for a workload, or why it is infeasible."""
    try:
        design = design_of(genes)
    except MachineError as fault:  # the template does not have it
        return LoggedDesign(genes, None, None, str(fault))
    area, reason = design.area_mm2, misfit_of(genes, design, workload, area_cap_mm2)
    if reason:
        return LoggedDesign(genes, None, area, reason)
    try:
        found = evaluate_workload(design, workload)
    except AcceleratorError as fault:
        return LoggedDesign(genes, None, area, str(fault))
    return LoggedDesign(genes, found.seconds * 1e3, area, "")


def write_log(
    path: Path,
    workload: Workload,
    designs: int,
    seed: int = 0,
    on_design: Callable[[LoggedDesign], None] = lambda design: None,
) -> int:
    """Write random designs until the file has so many; returns how many are feasible.

    A file that exists is continued: it has to be of the same seed. A last line that was
    cut is written again.
    """
    known = _whole_rows(path)
    feasible = sum(row["infeasible"] == "0" for row in known)
    with path.open("w" if not known else "r+", newline="") as file:
        if known:
            _require_seed(path, known, seed)
            file.seek(0)
            file.truncate()
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(known)
        file.flush()
        for number in range(len(known), designs):
            found = simulate_design(draw(seed, number), workload)
            feasible += found.is_feasible
            writer.writerow(_row(found))
            if number % 64 == 0:
                file.flush()
            on_design(found)
    return feasible


def _whole_rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
    rows = list(csv.DictReader(lines))
    if rows and tuple(rows[0]) != COLUMNS:
        raise AcceleratorError(
            f"{path} is no log of this space; wanted the columns {', '.join(COLUMNS)}"
        )
    return rows


def _require_seed(path: Path, known: list[dict[str, str]], seed: int) -> None:
    first = {name: str(value) for name, value in values_of(draw(seed, 0)).items()}
    if any(known[0][name] != value for name, value in first.items()):
        raise AcceleratorError(f"{path} was written with another seed than {seed}")


def _row(found: LoggedDesign) -> dict[str, object]:
    return {
        **values_of(found.genes),
        "runtime_ms": "" if found.runtime_ms is None else f"{found.runtime_ms:.6g}",
        "area_mm2": "" if found.area_mm2 is None else f"{found.area_mm2:.4f}",
        "infeasible": int(not found.is_feasible),
        "reason": found.reason,
    }


def read_log(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a log, as texts by column."""
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)
