"""Records of measurements: value, unit, spread, machine and versions, as JSON lines."""

import json
import os
import platform
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

UNITS = (
    ("_bytes_per_s", "B/s"),
    ("_flops_per_s", "FLOP/s"),
    ("_per_s", "1/s"),
    ("_ms", "ms"),
    ("_us", "us"),
    ("_ns", "ns"),
    ("_s", "s"),
    ("seconds", "s"),
    ("_bytes", "B"),
    ("_flops", "FLOP"),
    ("_cycles", "cycles"),
)
"""Units by the ends of names; the first end that fits counts."""

PACKAGES = ("meshwright", "jax", "jaxlib", "numpy")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One figure of one run of a benchmark.

    value: median over `repeats`. unit: `None` if the figure's name tells none.
    spread: largest less smallest value; 0 if measured once.
    """

    benchmark: str
    case: str
    value: float
    unit: str | None
    spread: float
    repeats: int
    seed: int | None
    where: dict[str, Any]
    versions: dict[str, str]


@dataclass(slots=True)
class Samples:
    """Values of each case of a benchmark, one a run, and their units."""

    values: dict[str, list[float]] = field(default_factory=dict)
    units: dict[str, str | None] = field(default_factory=dict)

    def add(self, case: str, value: float, unit: str | None) -> None:
        """Add a run's value of one case."""
        self.values.setdefault(case, []).append(value)
        self.units[case] = unit

    def add_changes(self, before: Any, after: Any) -> None:
        """Add the numbers of a file of figures that a run added or changed."""
        known = dict(numbers(before))
        for case, value in numbers(after):
            if known.get(case) != value:
                self.add(case, value, unit_of(case))


def numbers(figures: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Numbers of JSON data, each with its path: `("rows/0 t32 bp/step_s", 0.1)`.

    A row of a list is named by its index and its first two short texts.
    """
    if isinstance(figures, dict):
        for name, value in figures.items():
            yield from numbers(value, f"{path}/{name}" if path else name)
    elif isinstance(figures, list):
        for index, value in enumerate(figures):
            label = " ".join([str(index), *_texts(value)])
            yield from numbers(value, f"{path}/{label}" if path else label)
    elif isinstance(figures, int | float) and not isinstance(figures, bool):
        yield path, figures


def unit_of(case: str) -> str | None:
    """The unit that a figure's name ends in; `None` if it says none."""
    for part in reversed(case.split("/")):
        for end, unit in UNITS:
            if part.endswith(end):
                return unit
    return None


def where() -> dict[str, Any]:
    """The machine of this process: system, processor and cores."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that figures depend on."""
    return {"python": platform.python_version(), **dict(_installed())}


def append_records(path: Path, name: str, seed: int | None, samples: Samples) -> None:
    """Add a line for each case that was measured."""
    machine, packages = where(), versions()
    lines = [
        json.dumps(
            asdict(
                Measurement(
                    benchmark=name,
                    case=case,
                    value=statistics.median(values),
                    unit=samples.units[case],
                    spread=max(values) - min(values),
                    repeats=len(values),
                    seed=seed,
                    where=machine,
                    versions=packages,
                )
            )
        )
        for case, values in samples.values.items()
    ]
    if lines:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


def _texts(row: Any) -> list[str]:
    if not isinstance(row, dict):
        return []
    return [v for v in row.values() if isinstance(v, str) and len(v) <= 40][:2]


def _processor() -> str:
    cpus = Path("/proc/cpuinfo")
    if cpus.is_file():
        for line in cpus.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _installed() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, "not installed"
