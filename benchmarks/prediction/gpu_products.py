"""Predicted seconds of matrix products on GPUs, beside measured ones.

    python -m benchmarks prediction gpu_products [--only CHIP]

The measurements are a sample of Vidur's tables (`benchmarks/data/vidur`).
"""

from __future__ import annotations

import csv
import math
import os
import statistics
from collections import defaultdict

from benchmarks import places
from benchmarks.harness import ONLY, STORED, Options, benchmark

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp

import meshwright as mw

TABLE = places.ROOT / "benchmarks" / "data" / "vidur" / "products.csv"
MACHINES = {"a100": "a100-80g", "h100": "h100"}


def predicted_s(chip: str, rows: int, columns: int, summed: int) -> float:
    """Simulated seconds of a product of float16 on one GPU."""
    shapes = ((rows, summed), (summed, columns))
    args = [jax.ShapeDtypeStruct(shape, "float16") for shape in shapes]
    plan = mw.partition(jnp.matmul, {"all": 1}, []).plan(*args)
    return plan.on(MACHINES[chip]).step_time_s


@benchmark(ONLY, out=STORED)
def main(options: Options) -> None:
    """Print and save the errors by chip and size."""
    errors: defaultdict[tuple[str, float], list[float]] = defaultdict(list)
    with TABLE.open() as lines:
        for row in csv.DictReader(lines):
            if options.only not in row["chip"]:
                continue
            sizes = tuple(int(row[k]) for k in ("rows", "columns", "summed"))
            size = math.floor(2 * math.log10(2 * math.prod(sizes))) / 2
            measured_s = float(row["microseconds"]) * 1e-6
            ratio = predicted_s(row["chip"], *sizes) / measured_s
            errors[row["chip"], size].append(ratio - 1)
    for (chip, size), found in sorted(errors.items()):
        print(
            f"{chip}  from 1e{size:4} FLOPs: bias {statistics.median(found):+6.1%}, "
            f"median error {statistics.median(map(abs, found)):5.1%}, {len(found)} products"
        )
    figures = {
        f"{chip} from 1e{size}": statistics.median(map(abs, found))
        for (chip, size), found in sorted(errors.items())
    }
    if not options.only:
        options.save({"median_errors": figures})


if __name__ == "__main__":
    main()
