"""Draws docs/pictures/overview.png from real runs: `pip install matplotlib` first.

Left, the collectives of T32 on 32 chips, schedule by schedule, as PartIR's table counts
them; right, a tiny GPT trained on one device and, partitioned, on eight.

    python -m tools.pictures
"""

from __future__ import annotations

from pathlib import Path

import jax
import matplotlib.pyplot as plt

import meshwright as mw
from zoo import gpt
from zoo.text import batches, load_text

OUT = Path(__file__).parents[1] / "docs" / "pictures" / "overview.png"
KINDS = ("all_gather", "all_reduce", "reduce_scatter")
SCHEDULES = ("bp", "mp", "bp+mp", "bp+mp+z2", "bp+mp+z3", "bp+mp+z3+emb")


def draw_counts(axes: plt.Axes) -> None:
    """Stacked bars: executions per step by kind of collective."""
    fn, args = gpt.t32()
    mesh = mw.Mesh({"batch": 8, "model": 4})
    bottoms = [0] * len(SCHEDULES)
    counts = [
        mw.partition(fn, mesh, gpt.schedules[s], gather="at_use").plan(*args).counts
        for s in SCHEDULES
    ]
    for kind in KINDS:
        heights = [c[kind] for c in counts]
        bars = axes.bar(
            SCHEDULES, heights, bottom=bottoms, label=kind.replace("_", "-")
        )
        axes.bar_label(
            bars, [h or "" for h in heights], label_type="center", fontsize=8
        )
        bottoms = [b + h for b, h in zip(bottoms, heights, strict=True)]
    axes.set_title("T32, 5.5 billion parameters, 8 x 4 chips: collectives a step")
    axes.tick_params("x", rotation=20)
    axes.legend()


def draw_losses(axes: plt.Axes, num_steps: int = 60) -> None:
    """Two curves that lie on each other."""
    fn, (start, _) = gpt.tiny()
    step = mw.partition(fn, {"batch": 4, "model": 2}, gpt.schedules["bp+mp+z3"])
    runs = (("one device", jax.jit(fn), "-", 5), ("8 devices, bp+mp+z3", step, "--", 2))
    for label, run, style, width in runs:
        state, losses = start, []
        data = batches(load_text(), gpt.TINY.batch, gpt.TINY.sequence, seed=1)
        for _ in range(num_steps):
            state, loss = run(state, next(data))
            losses.append(float(loss))
        axes.plot(losses, style, label=label, linewidth=width, alpha=0.8)
    axes.set_title("A tiny GPT on bytes of real text")
    axes.set_xlabel("step")
    axes.set_ylabel("loss, nats a byte")
    axes.legend()


def main() -> None:
    """Draw both and save."""
    jax.config.update("jax_num_cpu_devices", 8)
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4.5), layout="constrained")
    draw_counts(left)
    draw_losses(right)
    OUT.parent.mkdir(exist_ok=True)
    figure.savefig(OUT, dpi=110)


if __name__ == "__main__":
    main()
