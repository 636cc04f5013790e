"""Predicted order of nets by latency, compared with the TPU compiler's cycles.

    python -m benchmarks tpu net_latency [--compile] [--only TEXT] [--out FILE]

The nets are the published B0, X-B0 and EdgeTPU-S, and nets that are drawn from choices of
stages: kernel, expansion, fused or depthwise, activation, squeeze, width, repeats and image
size. With `--compile`, forward passes in bfloat16 are compiled to the end for four chips
(needs `meshwright[tpu]`; resumable). Without it, stored cycles are compared with
`nas.latency`: Kendall's tau of each chip, and the median ratio of the times.
"""

from __future__ import annotations

import os
import random
import statistics
from collections.abc import Mapping
from functools import partial
from typing import Any

from benchmarks.harness import ONLY, STORED, Options, benchmark, option

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
from scipy.stats import kendalltau

import meshwright as mw
from meshwright.codesign import nas
from meshwright.machine import load_machine
from meshwright.run.compilers.confirm import DeviceStep, confirm
from zoo.efficientnet import inference, serving_target
from zoo.efficientnet_sizes import Config
from zoo.mbconv import Stage
from zoo.workload import Target

CHIPS = ("tpu-v5e", "tpu-v4", "tpu-v6e", "tpu-v5p")
BATCH = 32
_DRAWN = 24
_CHANNELS = ((16, 24), (24, 48))


def drawn_net(seed: int) -> Config:
    """A small net with random stages; equal seeds give equal nets."""
    choose = random.Random(seed).choice
    activation = choose(["relu", "silu"])
    stages = tuple(
        Stage(
            choose([1, 2]),
            choose([3, 5]),
            2,
            choose([3, 4, 6]),
            inputs,
            outputs,
            activation,
            choose([True, False]),
        )
        for inputs, outputs in _CHANNELS
    )
    return Config(
        choose([0.75, 1.0, 1.5, 2.0]), 1, choose([96, 128, 160, 224]), 0.1, stages,
        activation, choose([0.0, 0.25]), stem=16, head=256, batch=BATCH,
    )  # fmt: skip


def nets() -> dict[str, Target]:
    """Targets by name, in bfloat16."""
    published = {
        n: partial(inference[n], batch=BATCH) for n in ("b0", "x_b0", "edge_s")
    }
    drawn = {f"drawn_{i}": serving_target(drawn_net(i)) for i in range(_DRAWN)}
    return {**drawn, **published}


def compiled_cycles(make: Target, chip: str) -> float | None:
    """Cycles of all fusions by the compiler's estimate, loops multiplied."""
    fn, args = make()
    decided = mw.partition(fn, {"core": 1}).decide(*args)
    avals = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in jax.tree.leaves(args))
    step = DeviceStep(decided.lowered, avals)
    return confirm(step, load_machine(chip, 1), full=True, timeout_s=1200).cycles


def compare(cycles: Mapping[str, float]) -> dict[str, Any]:
    """Predicted and compiled seconds of each net on one chip, and their tau."""
    chip, targets = "", nets()
    rows: dict[str, dict[str, float]] = {}
    for case, count in cycles.items():
        name, chip = case.split("/")
        clock_hz = load_machine(chip, 1).chip.clock_hz
        assert clock_hz, f"{chip} has a clock"
        predicted_s = nas.latency(*targets[name](), machine=chip).seconds
        rows[name] = {"compiled_s": count / clock_hz, "predicted_s": predicted_s}
    ours, theirs = (
        [row[side] for row in rows.values()] for side in ("predicted_s", "compiled_s")
    )
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    tau = float(kendalltau(ours, theirs).statistic)
    print(f"{chip}: {len(rows)} nets, tau {tau:.3f}, {statistics.median(ratios):.2f}")
    return {"tau": tau, "median_ratio": statistics.median(ratios), "nets": rows}


@benchmark(
    ONLY, option("--compile", action="store_true", help="compile nets"), out=STORED
)
def main(options: Options) -> None:
    """Compile what is missing, or compare what is stored."""
    stored = options.stored({"cycles": {}})
    cycles: dict[str, float] = stored["cycles"]
    if options.compile:
        for chip in CHIPS:
            for name, make in nets().items():
                case = f"{name}/{chip}"
                if case in cycles or options.only not in case:
                    continue
                count = compiled_cycles(make, chip)
                assert count, f"the compiler estimates {case}"
                cycles[case] = count
                print(case, count, flush=True)
                options.save({"cycles": cycles})
        return
    chips = {
        chip: compare(found)
        for chip in CHIPS
        if (found := {c: n for c, n in cycles.items() if c.endswith(chip)})
    }
    options.save({"chips": chips, "cycles": cycles})


if __name__ == "__main__":
    main()
