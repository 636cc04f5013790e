"""Heap of zoo steps on TPUs: exact offsets compared with the compiler's own packing.

Every program at its first published size, by its best schedule and mesh, on each TPU of
the presets. The compiler's packing is the simulator's best-fit packing, which follows
XLA's heap simulator. A height is the number of bytes of the heap that a packing needs.

    python -m benchmarks allocation packing [--seconds 5] [--only gpt]

Resumable: rows that the results file has are not computed again.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks.harness import ONLY, STORED, Options, benchmark, option

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from rich.console import Console
from rich.table import Table

import meshwright as mw
from zoo.catalogue import WORKLOADS
from zoo.workload import Workload

MACHINES = ("tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-7x")
CORES_PER_CHIP = {"tpu-v3": 2, "tpu-7x": 2}
"""Devices of one chip, where it has more than one."""


def rows_of(workload: Workload, seconds: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """The heights of a program's heap on each machine, by the machine's name."""
    target = workload.full[0] if workload.full else workload.tiny
    fn, args = target()
    tactics = workload.schedules[workload.best]
    plan = mw.partition(fn, workload.mesh, tactics).plan(*args)
    for name in MACHINES:
        chips = plan.mesh.num_devices // CORES_PER_CHIP.get(name, 1)
        machine = mw.machine(name, chips=chips)
        found = plan.on(machine, donate_state=True).offsets(seconds)
        yield (
            name,
            {
                "target": target.__name__,
                "buffers": len(found.allocation.buffers),
                "compiler_bytes": found.compiler_bytes,
                "exact_bytes": found.allocation.height,
                "bound_bytes": found.allocation.bound,
                "seconds": found.allocation.seconds,
                "fits": found.fits,
                "fits_only_by_offsets": found.fits_only_so,
            },
        )


@benchmark(
    option("--seconds", type=float, default=5.0),
    ONLY,
    out=STORED,
)
def main(options: Options) -> None:
    """Search the offsets of all cases that have none yet, and print the heights."""
    rows: dict[str, dict[str, Any]] = options.stored({})
    for workload in WORKLOADS:
        if options.only not in workload.name or workload.name in rows:
            continue
        rows[workload.name] = dict(rows_of(workload, options.seconds))
        options.save(rows)
        print(workload.name, flush=True)
    show(rows)


def show(rows: dict[str, dict[str, Any]]) -> None:
    """Print our height over the compiler's, by program and machine."""
    table = Table("program", "buffers", *MACHINES)
    ratios: list[float] = []
    optimal = fits_only = 0
    for program, found in rows.items():
        cells = []
        for name in MACHINES:
            row = found[name]
            ratios.append(min(1.0, row["exact_bytes"] / max(row["compiler_bytes"], 1)))
            optimal += row["exact_bytes"] == row["bound_bytes"]
            fits_only += row["fits_only_by_offsets"]
            cells.append(f"{ratios[-1]:.4f}")
        table.add_row(program, str(found[MACHINES[0]]["buffers"]), *cells)
    console = Console()
    console.print(table)
    if ratios:
        console.print(
            f"{len(ratios)} cases, mean ratio {statistics.mean(ratios):.4f}, least "
            f"{min(ratios):.4f}; {sum(r < 1 for r in ratios)} lower than the compiler's, "
            f"{optimal} proven lowest, {fits_only} fit only by exact offsets"
        )


if __name__ == "__main__":
    main()
