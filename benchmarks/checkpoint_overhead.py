"""The cost of saving in the background: seconds of a step with and without checkpoints.

    python -m benchmarks.checkpoint_overhead [--steps 400] [--every 50] [--rounds 5]

A tiny GPT of the zoo is trained on one device, in turns with and without a checkpoint
every so many steps. Printed are the medians of both, and the difference as a share. Wall
clock and CPU time are both given: the writer's threads share the cores with the steps here,
as they would not with an accelerator.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax

import meshwright as mw
from zoo import gpt
from zoo.text import batches, load_text

RESULTS = Path(__file__).parent / "results" / "checkpoint_overhead.json"


def run(step: Any, state: Any, steps: int, every: int | None) -> dict[str, float]:
    """Seconds per step of a training, and how long saves held it up.

    longest_save_s: of one call of `save`. held_up: share of all time spent in `save`.
    """
    data = batches(load_text(), gpt.TINY.batch, gpt.TINY.sequence, seed=0)
    held = [0.0]
    with tempfile.TemporaryDirectory() as folder, mw.Checkpoints(folder) as checkpoints:
        wall, cpu = time.perf_counter(), time.process_time()
        for number in range(1, steps + 1):
            state, loss = step(state, next(data))
            if every is not None and number % every == 0:
                jax.block_until_ready(loss)
                start = time.perf_counter()
                checkpoints.save(number, state, position=number)
                held.append(time.perf_counter() - start)
        jax.block_until_ready(loss)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {
        "step_s": wall / steps,
        "step_cpu_s": cpu / steps,
        "longest_save_s": max(held),
        "held_up": sum(held) / wall,
    }


def compare(steps: int, every: int, rounds: int) -> dict[str, Any]:
    """The medians of several rounds, each with and without checkpoints."""
    step = jax.jit(gpt.train_step, donate_argnums=0)
    make = jax.jit(partial(gpt.init, gpt.TINY))
    run(step, make(jax.random.key(0)), every, every)  # compiles
    found: dict[str, list[dict[str, float]]] = {"without": [], "with": []}
    for _ in range(rounds):
        for name, saved in (("without", None), ("with", every)):
            found[name].append(run(step, make(jax.random.key(0)), steps, saved))
    medians = {
        name: {key: statistics.median(each[key] for each in runs) for key in runs[0]}
        for name, runs in found.items()
    }
    shares = {
        key: medians["with"][key] / medians["without"][key] - 1
        for key in ("step_s", "step_cpu_s")
    }
    state = jax.eval_shape(make, jax.random.key(0))
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    return {
        "steps": steps, "every": every, "state_bytes": size, **medians, "shares": shares
    }  # fmt: skip


def main() -> None:
    """Measure, print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    figures = compare(options.steps, options.every, options.rounds)
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
