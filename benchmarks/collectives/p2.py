"""Predicted programs and placements against the rows that P2 measured.

P2 (Xie et al., "Synthesizing Optimal Parallelism Placement and Reduction Strategies",
MLSys 2022, appendix A) gives for each placement the seconds of plain all-reduce and of the
fastest program, with NCCL's ring and tree, and how many programs each case has. It does
not say which program was fastest. So three things are compared:

- Totals: the number of programs of each case (summed over its placements).
- Fastest program: a row is hit at k if one of the first k predicted programs can be the
  one that was measured to be fastest. If that beat plain all-reduce by at most 2 %, only
  plain all-reduce can be. Else a program can be if it is another one whose predicted gain
  over plain all-reduce is near the measured gain: within 10, 15 or 20 %.
- Sign: whether the first predicted program is plain all-reduce if and only if the
  measured one is.
- Placements: whether the placement of a case that is predicted to be fastest, with its
  fastest program, was measured to be fastest (within 2 %).

The machines are `benchmarks/machines/p2-*.toml`, with the rates that P2 states.

    python -m benchmarks collectives p2 benchmarks/data/p2/measured.csv
"""

from __future__ import annotations

import csv
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import meshwright as mw
from benchmarks import places
from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.features.collectives.reductions import Reductions
from meshwright.machine import Machine

SYSTEM = re.compile(r"(\d+) nodes each with (\d+) (\w+)")
FLOATS_PER_NODE = 2**29  # of the value on each device: P2, section 5
SAME = 0.02
CLOSE = (0.1, 0.15, 0.2)
FIRST = (1, 2, 3, 5, 6, 10)


@dataclass(frozen=True)
class Row:
    """One measured placement with one of NCCL's algorithms; seconds."""

    case: tuple[str, str, str]
    nodes: int
    devices: int
    chip: str
    matrix: tuple[tuple[int, ...], ...]
    reduce_axes: tuple[int, ...]
    library: str
    total: str
    plain_s: float
    fastest_s: float

    @property
    def gain(self) -> float:
        return self.plain_s / self.fastest_s


def read_rows(path: Path) -> list[Row]:
    """The rows of a file with the columns of P2's appendix; misprints are mended."""
    with path.open(encoding="utf-8") as file:
        return [row for line in csv.DictReader(file) for row in _rows(line)]


def _rows(line: dict[str, str]) -> Iterator[Row]:
    found = SYSTEM.fullmatch(line["system"].strip())
    if found is None:
        raise SystemExit(f"cannot read system {line['system']!r}")
    for library in ("ring", "tree"):
        plain = line[f"allreduce_{library}_s"]
        if not plain:
            continue
        fastest, told = line[f"opt_{library}_s"], line[f"speedup_{library}"]
        fastest_s = float(fastest)
        if told and abs(float(plain) / fastest_s / float(told) - 1) > 0.5:
            fastest_s = float(plain) / float(told)  # 1.84 printed for 14.84
        yield Row(
            (line["system"], line["parallelism_axes"], line["reduce_axes"]),
            int(found[1]),
            int(found[2]),
            found[3],
            tuple(
                tuple(map(int, row.split()))
                for row in line["matrix"].replace("[", "").split("]")
                if row.strip()
            ),
            tuple(map(int, line["reduce_axes"].strip("[]").split())),
            library,
            line[f"progs_{library}"].partition("/")[2],
            float(plain),
            fastest_s,
        )


def machine_of(chip: str) -> Machine:
    return mw.machine(places.MACHINES / f"p2-{chip.lower()}.toml")


def predicted(row: Row, library: str | None = None) -> Reductions:
    return mw.reductions(
        (row.nodes, row.devices),
        row.matrix,
        row.reduce_axes,
        machine=machine_of(row.chip),
        num_bytes=4 * FLOATS_PER_NODE * row.nodes,
        library=library or row.library,
    )


def rank_of_fastest(row: Row, found: Reductions, close: float) -> int | None:
    """Position of the first program that can be the measured fastest; None if none can."""
    plain = found.plain
    for rank, each in enumerate(found):
        if row.gain <= 1 + SAME:
            if each is plain:
                return rank
        elif each is not plain:
            assert plain.seconds is not None
            assert each.seconds is not None
            if abs(plain.seconds / each.seconds / row.gain - 1) <= close:
                return rank
    return None


def compare(rows: list[Row]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The summary, and a line for each row."""
    lines: list[dict[str, Any]] = []
    cases: dict[Any, list[tuple[Row, Reductions]]] = defaultdict(list)
    slowest_s = 0.0
    for row in rows:
        start = time.process_time()
        found = predicted(row)
        slowest_s = max(slowest_s, time.process_time() - start)
        cases[row.case, row.library].append((row, found))
        lines.append(_line(row, found))
    summary = {
        "rows": len(rows),
        "fastest_program": {
            f"gain within {close:.0%}": {
                f"top-{k}": float(np.mean([_is_hit(n["ranks"][i], k) for n in lines]))
                for k in FIRST
            }
            for i, close in enumerate(CLOSE)
        },
        "sign": float(np.mean([line["sign_agrees"] for line in lines])),
        **_of_cases(cases),
        "rank_correlation_of_seconds": _correlations(lines),
        "median_error_of_gain": float(
            np.median([abs(n["predicted_gain"] / n["gain"] - 1) for n in lines])
        ),
        "slowest_case_s": slowest_s,
    }
    return summary, lines


def _is_hit(rank: int | None, k: int) -> bool:
    return rank is not None and rank < k


def _line(row: Row, found: Reductions) -> dict[str, Any]:
    return {
        "system": row.case[0],
        "matrix": row.matrix,
        "reduce_axes": row.reduce_axes,
        "library": row.library,
        "gain": row.gain,
        "predicted_gain": found.speed_up,
        "plain_s": row.plain_s,
        "predicted_plain_s": found.plain.seconds,
        "ranks": [rank_of_fastest(row, found, close) for close in CLOSE],
        "sign_agrees": (found[0] is found.plain) == (row.gain <= 1 + SAME),
        "program": str(found[0]),
    }


def _of_cases(
    cases: dict[Any, list[tuple[Row, Reductions]]],
) -> dict[str, Any]:
    """Totals of programs, and placements, by case."""
    totals: list[bool] = []
    hits: list[bool] = []
    for members in cases.values():
        row = members[0][0]
        axes = [int(n) for n in row.case[1].strip("[]").split()]
        every = mw.placements([row.nodes, row.devices], axes)
        count = sum(
            len(mw.reductions(every.hierarchy, matrix, row.reduce_axes))
            for matrix in every
        )
        if row.total:
            totals.append(int(row.total) == count)
        if len(members) > 1:
            chosen = min(members, key=lambda m: m[1][0].seconds or 0.0)[0]
            best_s = min(m[0].fastest_s for m in members)
            hits.append(chosen.fastest_s <= best_s * (1 + SAME))
    return {
        "totals_equal": f"{sum(totals)} of {len(totals)}",
        "fastest_placement": f"{sum(hits)} of {len(hits)}",
    }


def _correlations(lines: list[dict[str, Any]]) -> dict[str, float]:
    """Spearman's correlation of measured and predicted seconds of plain all-reduces."""
    found: dict[str, float] = {}
    for system in sorted({line["system"] for line in lines}):
        own = [n for n in lines if n["system"] == system]
        ranks = [
            np.argsort(np.argsort([line[key] for line in own]))
            for key in ("plain_s", "predicted_plain_s")
        ]
        found[system] = float(np.corrcoef(*ranks)[0, 1])
    return found


@benchmark(
    option("measured", type=Path, help="a CSV file of measured rows"),
    out=STORED,
)
def main(options: Options) -> None:
    summary, lines = compare(read_rows(options.measured))
    print(json.dumps(summary, indent=1))
    options.save({**summary, "lines": lines})


if __name__ == "__main__":
    main()
