"""The table of digits models: accuracies of `train_table`, and predicted costs."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path

import jax
import numpy as np

from benchmarks.codesign import macro_space
from benchmarks.codesign.macro_table import MACHINES, TABLE
from benchmarks.harness import Options, benchmark, option
from meshwright.codesign import nas
from meshwright.predict.roofline.work import program_work
from meshwright.program.capture import capture

BATCH = 128
"""Images of a call whose latency is predicted."""


@benchmark(
    option("--table", type=Path, default=Path("out/trained.csv"), help="accuracies"),
)
def main(options: Options) -> None:
    """Predict the costs of all models, and write `digits_table.csv`."""
    with options.table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    costs = _known_costs()
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], "parameters", "macs", *MACHINES])
        writer.writeheader()
        for row in rows:
            if row["model"] not in costs:
                costs[row["model"]] = _costs(row["model"])
            writer.writerow({**row, **costs[row["model"]]})
    print(f"{len(rows)} rows of {len(costs)} models, {TABLE.stat().st_size} bytes")


def _known_costs() -> dict[str, dict[str, str]]:
    """Costs by model in the table as it stands; remove it if the cost model changed."""
    if not TABLE.exists():
        return {}
    with TABLE.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if None not in row.values()]
    names = ("parameters", "macs", *MACHINES)
    return {row["model"]: {name: row[name] for name in names} for row in rows}


def _costs(model: str) -> dict[str, str]:
    """Parameters, multiply-adds of an image, and seconds of a call on each machine."""
    kinds = [macro_space.KINDS[int(digit)] for digit in model]
    init = partial(macro_space.init, kinds=kinds)
    params = jax.eval_shape(init, jax.random.key(0))
    sizes = [int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params)]

    def serve(params: object, images: object) -> object:
        return macro_space.apply(params, images, kinds)  # pyright: ignore[reportArgumentType]

    one = jax.ShapeDtypeStruct((1, 8, 8, 1), "float32")
    many = jax.ShapeDtypeStruct((BATCH, 8, 8, 1), "float32")
    work = program_work(capture(serve, (params, one)).program)
    seconds = {
        machine: f"{nas.latency(serve, (params, many), machine).seconds:.6e}"
        for machine in MACHINES
    }
    return {"parameters": str(sum(sizes)), "macs": f"{work.flops / 2:.0f}", **seconds}


if __name__ == "__main__":
    main()
