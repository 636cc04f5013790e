"""The cost of saving in the background: seconds of a step with and without checkpoints.

    python -m benchmarks checkpoint checkpoint_overhead [--pairs 8] [--every 50]

A tiny GPT of the zoo is trained on one device in one run, which consists of blocks of as
many steps as lie between two saves. Of each pair of blocks one begins with a save and the
other has none, in the order without-with, with-without and so on, so that a machine that
becomes slower adds nothing to the difference. A save is committed within its block. Printed
are the medians over blocks, and the median over pairs of the difference as a share. Wall
clock and CPU time are both given: the writer's threads share the cores with the steps here,
as they would not with an accelerator. Other work on the machine disturbs the wall clock
more than saves do: run it on a quiet core.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from functools import partial
from typing import Any

from benchmarks.harness import STORED, Options, benchmark, option

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax

import meshwright as mw
from zoo import gpt
from zoo.text import batches, load_text


class Training:
    """A training that is run block by block; the saves go into one directory."""

    def __init__(self, folder: str) -> None:
        """Make the state, and compile the step and all that a save needs."""
        self._step = jax.jit(gpt.train_step, donate_argnums=0)
        self._data = batches(load_text(), gpt.TINY.batch, gpt.TINY.sequence, seed=0)
        self._state = jax.jit(partial(gpt.init, gpt.TINY))(jax.random.key(0))
        self._number = 0
        self._checkpoints = mw.Checkpoints(folder)
        leaves = jax.tree.leaves(self._state)
        self.state_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
        for _ in range(4):  # from the fourth on, an old checkpoint is deleted
            self.run_block(1, save=True)
            self._checkpoints.wait()

    def run_block(self, steps: int, save: bool) -> dict[str, float]:
        """Seconds per step of a block, and for how long its save held it up."""
        wall, cpu, held_s = time.perf_counter(), time.process_time(), 0.0
        if save:
            start = time.perf_counter()
            self._checkpoints.save(self._number, self._state, position=self._number)
            held_s = time.perf_counter() - start
        for _ in range(steps):
            self._state, loss = self._step(self._state, next(self._data))
            self._number += 1
        jax.block_until_ready((self._state, loss))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return {"step_s": wall / steps, "step_cpu_s": cpu / steps, "save_s": held_s}

    def close(self) -> None:
        """Wait for the last save."""
        self._checkpoints.close()


def compare(pairs: int, every: int) -> dict[str, Any]:
    """The figures of all blocks, their medians, and the shares of the pairs."""
    found: dict[str, list[dict[str, float]]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory() as folder:
        training = Training(folder)
        training.run_block(every, save=False)
        for pair in range(pairs):
            names = ("without", "with") if pair % 2 == 0 else ("with", "without")
            for name in names:
                found[name].append(training.run_block(every, save=name == "with"))
                print(name, found[name][-1], flush=True)
        training.close()
    medians = {
        name: {
            key: statistics.median(each[key] for each in blocks) for key in blocks[0]
        }
        for name, blocks in found.items()
    }
    shares = {
        key: [b[key] / a[key] - 1 for a, b in zip(*found.values(), strict=True)]
        for key in ("step_s", "step_cpu_s")
    }
    return {
        "every": every,
        "state_bytes": training.state_bytes,
        **medians,
        "held_up": medians["with"]["save_s"] / medians["with"]["step_s"] / every,
        "shares": {key: statistics.median(row) for key, row in shares.items()},
        "shares_of_pairs": shares,
        "load": os.getloadavg()[0],
    }


@benchmark(
    option("--pairs", type=int, default=8),
    option("--every", type=int, default=50),
    out=STORED,
)
def main(options: Options) -> None:
    """Measure, print and write the figures."""
    figures = compare(options.pairs, options.every)
    options.save(figures)
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
