"""Predicted utilisation of MaxText's published runs on TPU v5p and v5e.

    python -m benchmarks prediction maxtext [--only TEXT] [--out FILE]

Published: README of MaxText (AI-Hypercomputer/maxtext, 2025), bfloat16, 2,048 tokens a
sequence, attention by a Pallas kernel, the batch over all slices. As in its
configs/v5e/*.sh and configs/v5p/*.sh, weights and optimizer state are cut over the chips of
a slice (fsdp); on v5p, heads, MLP and the residual stream are also cut over 4 or 8 chips.
MaxText's utilisation counts, per token, 6 operations for each weight of a product and
12 L S N H for attention, as if it were not causal, and nothing that is recomputed; ours
does the same. One v5p chip has two cores, by which its slices are named: v5p-128 has 64
chips.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import places
from benchmarks.harness import ONLY, STORED, Options, benchmark

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax

import meshwright as mw
from meshwright.machine import load_machine
from meshwright.machine.placement import place_mesh
from meshwright.predict.estimate import Estimate, estimate
from zoo.decoder import Config, Decoder, shapes, train_step
from zoo.llm import SIZES

RESULTS = places.RESULTS


@dataclass(frozen=True, slots=True)
class Run:
    """A published run.

    mfu: as printed, in percent. slices: of `chips` each. tensor: chips among which heads
    and MLP are cut.
    """

    size: str
    machine: str
    chips: int
    mfu: float
    slices: int = 1
    tensor: int = 1

    @property
    def name(self) -> str:
        """The key of the run in the results."""
        return f"{self.size}, {self.slices} x {self.chips} {self.machine}"


V5E = {
    "maxtext_v5e_16b": (61.1, 59.4, 59.1, 58.3, 56.6, 54.7),
    "maxtext_v5e_32b": (66.9, 64.8, 64.1, 63.7, 62.3, 60.4),
}
"""Published utilisation on 1, 2, 4, 8, 16 and 32 slices of 256 chips."""


def runs() -> Iterator[Run]:
    """Every published run whose shapes are known.

    32B on v5p is printed as 328 TFLOP/s and as 67.8 %. Of a peak of 459 TFLOP/s that is
    71.5 %, as configs/v5p/README.md has it. The other rows are consistent.
    """
    yield Run("maxtext_v5p_32b", "tpu-v5p", 64, 71.5, tensor=4)
    yield Run("maxtext_v5p_64b", "tpu-v5p", 64, 70.3, tensor=4)
    yield Run("maxtext_v5p_128b", "tpu-v5p", 128, 68.7, tensor=8)
    yield Run("maxtext_v5p_256b", "tpu-v5p", 512, 68.8, tensor=8)
    for size, shares in V5E.items():
        for turn, mfu in enumerate(shares):
            yield Run(size, "tpu-v5e", 256, mfu, 2**turn)


def flops_per_token(config: Config) -> int:
    """Operations of a train step per token, as MaxText counts them."""
    wide = config.heads * config.head_width
    kept = config.num_kv_heads * config.head_width
    projections = config.d_model * (2 * wide + 2 * kept)
    weights = config.layers * (projections + 3 * config.d_model * config.d_ff)
    weights += config.d_model * config.vocab
    return 6 * weights + 12 * config.layers * config.sequence * wide


def placed(run: Run) -> tuple[Estimate, Config]:
    """A simulated step of a run, and the configuration with its whole batch.

    The mesh lies on the machine as by bandwidth alone, since MaxText chooses its place
    before it knows the collectives. Our plans take a better place if there is one.
    """
    config = SIZES[run.size]
    config = replace(config, batch=config.batch * run.slices)
    model = Decoder(config)
    mesh = {"slice": run.slices, "data": run.chips // run.tensor, "model": run.tensor}
    mesh = {axis: size for axis, size in mesh.items() if size > 1}
    wide = [mw.megatron("model", vocabulary=False), mw.sequence_parallel("model")]
    tactics = [mw.data_parallel(axis, "batch.**") for axis in mesh if axis != "model"]
    tactics += [*(wide if "model" in mesh else []), mw.fsdp("data")]
    step = mw.partition(train_step(model), mesh, tactics, donate_argnums=0)
    decided = step.plan(*shapes(model)).decided
    assert decided is not None
    machine = load_machine(run.machine, run.chips * run.slices)
    by_bandwidth = place_mesh(decided.lowered.mesh, machine)
    return estimate(decided, machine, placement=by_bandwidth), config


def row_of(run: Run) -> dict[str, Any]:
    """Published and predicted utilisation, with the parts of the step time."""
    start_s = time.perf_counter()
    simulated, config = placed(run)
    peak = simulated.machine.chip.half_flops_per_s
    tokens = config.batch * config.sequence / (run.chips * run.slices)
    mfu = 100 * flops_per_token(config) * tokens / (simulated.step_time_s * peak)
    return {
        "run": run.name,
        "published_mfu": run.mfu,
        "predicted_mfu": mfu,
        "error": mfu / run.mfu - 1,
        "step_time_s": simulated.step_time_s,
        "peak_memory_bytes": simulated.peak_memory_bytes,
        "breakdown": dict(simulated.breakdown),
        "took_s": time.perf_counter() - start_s,
    }


@benchmark(
    ONLY,
    out=STORED,
)
def main(options: Options) -> None:
    """Predict, print and save."""
    rows = []
    for run in runs():
        if options.only in run.name:
            row = row_of(run)
            rows.append(row)
            told = ", ".join(f"{k} {v:.3g}" for k, v in row["breakdown"].items())
            print(
                f"{row['run']:36} {row['published_mfu']:5.1f} % "
                f"{row['predicted_mfu']:5.1f} % {100 * row['error']:+6.1f} %  "
                f"{row['step_time_s']:.2f} s: {told}",
                flush=True,
            )
    errors = [abs(row["error"]) for row in rows]
    told = {"median": statistics.median(errors), "largest": max(errors)}
    print(told)
    result = {"jax": jax.__version__, "summary": told, "runs": rows}
    if not options.only:
        options.save(result)


if __name__ == "__main__":
    main()
