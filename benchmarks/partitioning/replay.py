"""Plans and predictions of the zoo, to compare one version of Meshwright with another.

    python -m benchmarks partitioning replay write FILE [--only resnet]
    python -m benchmarks partitioning replay compare FILE [--only resnet]

For the small form of every program and each of its schedules, `write` stores a digest of
the plan's text and of its JSON, and the predicted step time, memory, breakdown and number
of kernels on five machines. `compare` prints each case that differs and exits with 1 if
any does. A change that is meant to keep behaviour compares equal to the version before it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import ONLY, Options, benchmark, option

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import meshwright as mw
from zoo.catalogue import WORKLOADS

MACHINES = ("tpu-v3", "tpu-v5e", "tpu-v5p", "h100", "cpu")


def digest(text: str) -> str:
    """A short hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def cases(only: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The cases by name, with their plan and the prediction on each machine."""
    for workload in WORKLOADS:
        if only not in workload.name:
            continue
        fn, args = workload.tiny()
        for name, tactics in workload.schedules.items():
            for gather in ("shared", "at_use"):
                mesh = workload.mesh
                try:
                    plan = mw.partition(fn, mesh, tactics, gather=gather).plan(*args)
                except mw.MeshwrightError as error:
                    yield f"{workload.name}/{name}/{gather}", {"error": str(error)}
                    continue
                row: dict[str, Any] = {
                    "text": digest(str(plan)),
                    "json": digest(plan.to_json()),
                }
                for machine in MACHINES:
                    row[machine] = predicted(plan, machine)
                yield f"{workload.name}/{name}/{gather}", row


def predicted(plan: mw.Plan, name: str) -> dict[str, Any]:
    """Predicted figures of a plan, with all digits."""
    devices = plan.mesh.num_devices
    chips = devices // 2 if name == "tpu-v3" else devices
    found = plan.on(mw.machine(name, chips=chips), donate_state=True)
    return {
        "step_time_s": found.step_time_s,
        "peak_memory_bytes": found.peak_memory_bytes,
        "breakdown": dict(found.breakdown),
        "text": digest(str(found)),
    }


@benchmark(
    option("verb", choices=("write", "compare")),
    option("file", type=Path),
    ONLY,
)
def main(options: Options) -> int:
    """Write the cases, or compare them with those of a file."""
    if options.verb == "write":
        rows = dict(cases(options.only))
        options.file.write_text(json.dumps(rows, indent=1) + "\n")
        print(f"{len(rows)} cases")
        return 0
    stored, differing, seen = json.loads(options.file.read_text()), 0, 0
    for name, row in cases(options.only):
        seen += 1
        parts = [key for key in row if row[key] != stored.get(name, {}).get(key)]
        if parts:
            differing += 1
            print(f"{name}: {', '.join(parts)} differ", flush=True)
    print(f"{seen} cases, {differing} differ")
    return 1 if differing or not seen else 0


if __name__ == "__main__":
    main()
