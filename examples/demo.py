"""A GPT training step: planned for 32 chips, run on 8 virtual ones, checked, trained.

Run it with `make demo`, or `python -m examples.demo [--steps 40]`.
"""

from __future__ import annotations

import argparse
import time

import jax
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import meshwright as mw
from zoo import gpt
from zoo.text import batches, load_text

CONSOLE = Console()
SCHEDULES = ("bp", "bp+mp", "bp+mp+z2", "bp+mp+z3")
BARS = "▁▂▃▄▅▆▇█"


def plan_large_model() -> None:
    """Print the collectives of T32, 5.5 billion parameters, on 32 chips."""
    step, args = gpt.t32()
    size = sum(leaf.size for leaf in jax.tree.leaves(args[0].params))
    CONSOLE.rule(f"1. Plan: {size / 1e9:.1f} billion parameters on 32 chips")
    table = Table(
        "schedule", *("all-gather", "all-reduce", "reduce-scatter"), "seconds to plan"
    )
    mesh = mw.Mesh({"batch": 8, "model": 4})
    for name in track(SCHEDULES, "planning", console=CONSOLE, transient=True):
        start = time.perf_counter()
        plan = mw.partition(step, mesh, gpt.schedules[name], gather="at_use").plan(
            *args
        )
        kinds = ("all_gather", "all_reduce", "reduce_scatter")
        counts = [str(plan.counts[kind]) for kind in kinds]
        table.add_row(name, *counts, f"{time.perf_counter() - start:.1f}")
    CONSOLE.print(table)


def check_small_model() -> mw.Partitioned:
    """Compare the tiny GPT on 8 virtual devices with one device, output by output."""
    CONSOLE.rule("2. Run: the same step on 8 virtual devices, compared with one device")
    fn, args = gpt.tiny()
    mesh = mw.Mesh({"batch": 4, "model": 2})
    step = mw.partition(fn, mesh, gpt.schedules["bp+mp+z3"])
    with CONSOLE.status("compiling both"):
        report = step.check(*args)
    CONSOLE.print(str(step.plan(*args)), highlight=False, markup=False, soft_wrap=True)
    CONSOLE.print(
        f"[bold]{len(report.outputs)} outputs, largest relative error "
        f"{report.worst:.1e}: {'equal' if report.ok else 'NOT EQUAL'}[/bold]"
    )
    if not report.ok:
        raise SystemExit(str(report))
    return step


def train(step: mw.Partitioned, num_steps: int) -> None:
    """Train both versions on real text, and compare their losses."""
    CONSOLE.rule(
        f"3. Train: {num_steps} steps on the Constitution of the United States"
    )
    fn, (state, _) = gpt.tiny()
    one_device, devices = jax.jit(fn), (state, state)
    losses: list[tuple[float, float]] = []
    data = batches(load_text(), gpt.TINY.batch, gpt.TINY.sequence, seed=1)
    for _ in track(range(num_steps), "training", console=CONSOLE, transient=True):
        batch = next(data)
        alone, loss_alone = one_device(devices[0], batch)
        together, loss_together = step(devices[1], batch)
        devices = (alone, together)
        losses.append((float(loss_alone), float(loss_together)))
    for which, name in enumerate(("one device", "8 devices")):
        curve = [pair[which] for pair in losses]
        CONSOLE.print(f"{name:>10}  {curve[0]:.4f} {sparkline(curve)} {curve[-1]:.4f}")
    off = max(abs(a - b) for a, b in losses)
    CONSOLE.print(f"largest difference of the losses: {off:.1e} nats")
    if off > 1e-2 or losses[-1][1] > losses[0][1] - 0.5:
        raise SystemExit("the two runs differ, or nothing was learned")


def sparkline(values: list[float]) -> str:
    """A curve in one line of text."""
    low, high = min(values), max(values)
    scale = (len(BARS) - 1) / ((high - low) or 1.0)
    return "".join(BARS[int(np.floor((v - low) * scale))] for v in values)


def main() -> None:
    """Plan, check, train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40, help="training steps")
    steps = parser.parse_args().steps
    jax.config.update("jax_num_cpu_devices", 8)
    plan_large_model()
    train(check_small_model(), steps)


if __name__ == "__main__":
    main()
