"""Trains the small size of every program and draws its learning curve.

    python -m zoo.figures [NAME ...] [--seeds 0 1 2] [--samples] [--out DIR]

Writes `figures.json`, first and last values with seeds, and one picture of all curves,
into `docs/zoo` of this repository or into DIR. Programs and seeds that are not named keep
their figures there, unless the number of steps has changed. With --samples, programs that
generate images are trained once more with the first seed, and write `NAME_samples.png`.

A run stores its wall-clock seconds, compilation included, which other work on the machine
lengthens, and `cpu_s`: CPU seconds of all its threads. With n free cores it takes at least
cpu_s / n seconds.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import matplotlib as mpl
import numpy as np

from zoo import sngan, unet
from zoo.catalogue import WORKLOADS
from zoo.workload import Workload, choose

FOLDER = Path(__file__).parents[1] / "docs" / "zoo"
FIGURES = "figures.json"
PICTURE = "training.png"

SAMPLES = {"unet": unet.write_samples, "sngan": sngan.write_samples}
"""What draws images of a program, in the rows above those it learned from."""

POINTS = 200
"""Points that a stored curve keeps at most: what a small picture can show."""

TENTH = 10
"""First and last figures are means over a tenth of the steps: single ones are noisy."""


def train(workload: Workload, seed: int) -> dict[str, Any]:
    """One run: its seconds, and every metric's first, last and curve."""
    start_s, start_cpu_s, told = time.perf_counter(), time.process_time(), []
    for step, measured in enumerate(workload.train(seed, workload.steps), start=1):
        told.append(measured)
        shown = f"{workload.metric} {measured[workload.metric]:.4g}"
        print(
            f"\r{workload.name} seed {seed}: step {step} of {workload.steps}, {shown}",
            end="", file=sys.stderr,
        )  # fmt: skip
    print(file=sys.stderr)
    elapsed_s, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
    names = [name for name in told[0] if all(name in row for row in told)]
    curves = {name: np.array([row[name] for row in told]) for name in names}
    return {
        "jax": jax.__version__,
        "seconds": round(elapsed_s, 1),
        "cpu_s": round(cpu_s, 1),
        "metrics": {name: _summary(curve) for name, curve in curves.items()},
    }


def _summary(curve: np.ndarray) -> dict[str, Any]:
    share = max(1, len(curve) // TENTH)
    kept = curve[:: max(1, -(-len(curve) // POINTS))]
    return {
        "first": _short(curve[:share].mean()),
        "last": _short(curve[-share:].mean()),
        "curve": [_short(x) for x in kept],
    }


def _short(number: float) -> float:
    return float(f"{number:.4g}")


def load(folder: Path = FOLDER) -> dict[str, Any]:
    """The figures that earlier runs stored in a folder."""
    path = folder / FIGURES
    return json.loads(path.read_text()) if path.exists() else {}


def merge(
    figures: Mapping[str, Any], workload: Workload, runs: Mapping[str, Any]
) -> dict[str, Any]:
    """The figures with new runs by seed; other seeds stay if they took as many steps."""
    new = {"steps": workload.steps, "metric": workload.metric}
    old = figures.get(workload.name, {})
    kept = old["seeds"] if all(old.get(key) == new[key] for key in new) else {}
    seeds = {**kept, **runs}
    ordered = {seed: seeds[seed] for seed in sorted(seeds, key=int)}
    return {**figures, workload.name: {**new, "seeds": ordered}}


def save(figures: Mapping[str, Any], folder: Path) -> None:
    """Store figures in the order of the catalogue; one line for each curve."""
    ordered = {w.name: figures[w.name] for w in WORKLOADS if w.name in figures}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FIGURES).write_text(_flat_lists(json.dumps(ordered, indent=1)) + "\n")


def _flat_lists(text: str) -> str:
    """Lists of numbers on one line each, for a readable difference."""
    lines, inside = [], False
    for line in text.splitlines():
        if inside:
            lines[-1] += line.strip() + ("" if line.strip().startswith("]") else " ")
        else:
            lines.append(line)
        inside = (inside or line.endswith("[")) and not line.strip().startswith("]")
    return "\n".join(line.replace(" ]", "]") for line in lines)


def draw(figures: Mapping[str, Any], folder: Path) -> None:
    """One small plot for each program: its metric by step, a line for each seed."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt  # after the choice of a backend

    shown = [w for w in WORKLOADS if w.name in figures]
    columns = 5
    rows = -(-len(shown) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(3 * columns, 2.2 * rows), squeeze=False
    )
    for axis in axes.flat[len(shown) :]:
        axis.set_visible(False)
    for axis, workload in zip(axes.flat, shown, strict=False):
        for seed, run in figures[workload.name]["seeds"].items():
            curve = run["metrics"][workload.metric]["curve"]
            steps = np.linspace(1, figures[workload.name]["steps"], len(curve))
            axis.plot(steps, curve, linewidth=1, label=f"seed {seed}")
        axis.set_title(workload.name, fontsize=9)
        axis.set_xlabel("step", fontsize=7)
        axis.set_ylabel(workload.metric, fontsize=7)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(folder / PICTURE, dpi=110)
    plt.close(figure)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options; invalid ones end the program with a message and status 2."""
    known = {w.name: w for w in WORKLOADS}
    parser = argparse.ArgumentParser(
        prog="python -m zoo.figures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    parser.add_argument("--seeds", nargs="+", type=_seed, default=[0, 1, 2])
    parser.add_argument("--samples", action="store_true")
    parser.add_argument("--out", type=Path, metavar="DIR", default=FOLDER)
    options = parser.parse_args(arguments)
    try:
        options.chosen = [choose(n, known, "program") for n in options.names or known]
    except ValueError as error:
        parser.error(str(error))
    if options.out.exists() and not options.out.is_dir():
        parser.error(f"--out {options.out} is no folder")
    return options


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a seed is a whole number from 0, not {text}")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the named programs, store each run when it ends, draw all stored runs."""
    options = _parsed(arguments)
    for workload in options.chosen:
        for seed in options.seeds:
            run = {str(seed): train(workload, seed)}
            # Read anew: other runs may have stored theirs in the meantime.
            figures = merge(load(options.out), workload, run)
            save(figures, options.out)
            draw(figures, options.out)
        if options.samples and workload.name in SAMPLES:
            path = options.out / f"{workload.name}_samples.png"
            SAMPLES[workload.name](path, options.seeds[0], workload.steps)


if __name__ == "__main__":
    main()
