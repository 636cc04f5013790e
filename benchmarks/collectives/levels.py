"""Gain of all-reduces by levels over plain ones, for the programs of the zoo.

Each train step is planned with data parallelism over 32 devices, and with the zoo's best
schedule (its first axis grows to fill 32). The machine has two levels and one network
card a node, as in P2. The second plan has the tactics that `Plan.proposed_levels` gives
for the first. Both are simulated, each in its best placement.

    python -m benchmarks collectives levels [NAME ...] [--machine FILE]
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import meshwright as mw
from benchmarks import places
from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.errors import MeshwrightError
from zoo.catalogue import WORKLOADS
from zoo.workload import Workload

MOST_S = 40.0
"""Seconds of one plan after which a program's other schedule is left out."""


def schedules_of(
    workload: Workload, devices: int
) -> Iterator[tuple[str, dict[str, int], list[Any]]]:
    """Name, mesh and tactics of each schedule."""
    yield "data parallel", {"data": devices}, [mw.data_parallel("data")]
    first, *rest = workload.mesh.items()
    inner = math.prod(size for _, size in rest)
    mesh = {first[0]: devices // inner, **dict(rest)}
    yield workload.best, mesh, list(workload.schedules[workload.best])


def compared(
    workload: Workload, machine: Path, devices: int
) -> Iterator[dict[str, Any]]:
    fn, args = workload.full[0]()
    for name, mesh, tactics in schedules_of(workload, devices):
        start = time.perf_counter()
        row: dict[str, Any] = {"program": workload.name, "schedule": name}
        try:
            plain = mw.partition(fn, mesh, tactics).plan(*args).on(machine)
            levels = plain.proposed_levels()
            chosen = plain
            if levels:
                split = mw.partition(fn, mesh, [*tactics, *levels])
                chosen = split.plan(*args).on(machine)
        except MeshwrightError as error:
            yield row | {"error": str(error)}
            continue
        yield row | {
            "levels": [str(each) for each in levels],
            "plain_s": plain.step_time_s,
            "by_levels_s": chosen.step_time_s,
            "gain": plain.step_time_s / min(plain.step_time_s, chosen.step_time_s),
            "placement": plain.figures.placement,
        }
        if time.perf_counter() - start > MOST_S:
            return


@benchmark(
    option("names", nargs="*", help="programs; all by default"),
    option("--machine", type=Path, default=places.MACHINES / "p2-a100.toml"),
    option("--devices", type=int, default=32),
    out=STORED,
)
def main(options: Options) -> None:
    rows: list[dict[str, Any]] = []
    for workload in WORKLOADS:
        if options.names and workload.name not in options.names:
            continue
        for row in compared(workload, options.machine, options.devices):
            rows.append(row)
            print(json.dumps(row), flush=True)
            options.save(rows)
    gains = [row["gain"] for row in rows if row.get("gain", 1.0) > 1.005]
    if gains:
        mean = math.exp(sum(map(math.log, gains)) / len(gains))
        print(f"{len(gains)} of {len(rows)} gain, {mean:.2f}x in the geometric mean")


if __name__ == "__main__":
    main()
