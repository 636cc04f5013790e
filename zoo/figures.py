"""Trains the small form of every program and draws what it learned.

    python -m zoo.figures [NAME ...] [--seeds 0 1 2] [--samples]

Writes `docs/zoo/figures.json`, first and last values with seeds, and one picture of all
curves. Programs that are not named keep the figures they have. With --samples, programs
that make images are trained once more by the first seed, and draw `NAME_samples.png`.
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
FIGURES = FOLDER / "figures.json"
PICTURE = FOLDER / "training.png"

SAMPLES = {"unet": unet.write_samples, "sngan": sngan.write_samples}
"""What draws images of a program, in the rows above those it learned from."""

POINTS = 200
"""Points that a stored curve keeps at most: what a small picture can show."""

TENTH = 10
"""First and last figures are means over a tenth of the steps: single ones are noisy."""


def train(workload: Workload, seed: int) -> dict[str, Any]:
    """One run: seconds with compilation, and every metric's first, last and curve."""
    start_s, told = time.perf_counter(), []
    for step, measured in enumerate(workload.train(seed, workload.steps), start=1):
        told.append(measured)
        shown = f"{workload.metric} {measured[workload.metric]:.4g}"
        print(
            f"\r{workload.name} seed {seed}: step {step} of {workload.steps}, {shown}",
            end="", file=sys.stderr,
        )  # fmt: skip
    print(file=sys.stderr)
    elapsed_s = time.perf_counter() - start_s
    names = [name for name in told[0] if all(name in row for row in told)]
    curves = {name: np.array([row[name] for row in told]) for name in names}
    return {
        "seconds": round(elapsed_s, 1),
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


def load() -> dict[str, Any]:
    """The figures stored by earlier runs."""
    return json.loads(FIGURES.read_text()) if FIGURES.exists() else {}


def save(figures: Mapping[str, Any]) -> None:
    """Store figures in the order of the catalogue; one line for each curve."""
    ordered = {w.name: figures[w.name] for w in WORKLOADS if w.name in figures}
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = json.dumps(ordered, indent=1)
    FIGURES.write_text(_flat_lists(text) + "\n")


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


def draw(figures: Mapping[str, Any]) -> None:
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
    figure.savefig(PICTURE, dpi=110)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what is named, store it, draw everything that is stored."""
    known = {w.name: w for w in WORKLOADS}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--samples", action="store_true")
    options = parser.parse_args(arguments)
    chosen = [choose(name, known, "program") for name in options.names or known]
    for workload in chosen:
        runs = {str(seed): train(workload, seed) for seed in options.seeds}
        figures = load() | {
            workload.name: {
                "jax": jax.__version__,
                "steps": workload.steps,
                "metric": workload.metric,
                "seeds": runs,
            }
        }
        save(figures)
        draw(figures)
        if options.samples and workload.name in SAMPLES:
            path = FOLDER / f"{workload.name}_samples.png"
            SAMPLES[workload.name](path, options.seeds[0], workload.steps)


if __name__ == "__main__":
    main()
