"""Seconds to trace and count every program of the zoo at its published size.

    python -m benchmarks zoo zoo_trace [NAME ...] [--out benchmarks/results/zoo_trace.json]

The whole zoo is meant to stay under five minutes on two cores.
"""

from __future__ import annotations

import os
import time

from benchmarks.harness import Options, benchmark, option

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax

from meshwright.features.zoo.command import trace_rows, zoo_entries

LIMIT_S = 300


@benchmark(option("names", nargs="*", metavar="NAME"))
def main(options: Options) -> None:
    """Trace, print a line for each, and save."""
    start_s, cpu_s = time.perf_counter(), time.process_time()
    rows = []
    for row in trace_rows(zoo_entries(options.names, tiny=False)):
        rows.append(row)
        print(f"{row['trace_s']:7.2f} s  {row['num_ops']:7d} ops  {row['target']}")
    wall_s = time.perf_counter() - start_s
    cpu_s = time.process_time() - cpu_s
    print(f"{wall_s:7.2f} s in all ({cpu_s:.1f} CPU s), limit {LIMIT_S} s")
    if options.out is not None:
        result = {
            "jax": jax.__version__,
            "cores": os.cpu_count(),
            "wall_s": round(wall_s, 1),
            "cpu_s": round(cpu_s, 1),
            "targets": rows,
        }
        options.save(result)


if __name__ == "__main__":
    main()
