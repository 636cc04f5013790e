"""Accuracies of all 729 models of `macro_space`, each trained from three seeds."""

from __future__ import annotations

import os

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import csv
import itertools
import time
from pathlib import Path

import jax
import jax.numpy as jnp

from benchmarks.codesign import macro_space
from benchmarks.codesign.digits import accuracies, digits
from benchmarks.harness import Options, benchmark, option

STEPS, CHECKS = 90, 3
COLUMNS = ("model", "seed", *(f"accuracy_{30 * (i + 1)}" for i in range(CHECKS)))


@benchmark(
    option("--seeds", type=int, default=3, help="seeds of each model"),
    option(
        "--table", type=Path, default=Path("out/trained.csv"), help="file to extend"
    ),
)
def main(options: Options) -> None:
    """Train what the file lacks; about 20 minutes of one core."""
    models = list(itertools.product(range(3), repeat=len(macro_space.CHANNELS)))
    done = _done(options.table)
    train = accuracies(macro_space.init, macro_space.apply, STEPS, CHECKS)
    images, labels = digits()
    begin = time.process_time()
    with options.table.open("a", newline="") as file:
        writer = csv.writer(file)
        if not done:
            writer.writerow(COLUMNS)
        for seed, model in itertools.product(range(options.seeds), models):
            name = "".join(map(str, model))
            if (name, str(seed)) in done:
                continue
            key = jax.random.fold_in(jax.random.key(seed), int(name, 3))
            found = train(key, images, labels, jnp.array(model))
            writer.writerow([name, seed, *(f"{float(each):.3f}" for each in found)])
            file.flush()
    print(f"{time.process_time() - begin:.0f} CPU seconds")


def _done(path: Path) -> set[tuple[str, str]]:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        return set()
    with path.open(newline="") as file:
        return {(row["model"], row["seed"]) for row in csv.DictReader(file)}


if __name__ == "__main__":
    main()
