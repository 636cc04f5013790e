"""Routings of a small ResNet and a ViT to approximate arrays: loss, power and area."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.codesign.textures import NETWORKS, textures, trained
from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.codesign import accelerator


@benchmark(
    option("--seeds", type=int, default=3),
    option("--trials", type=int, default=150),
    out=STORED,
)
def main(options: Options) -> None:
    """Print accuracy on images of no search, power and area of each routed chip."""
    for name, fn in NETWORKS.items():
        for seed in range(options.seeds):
            found = _routed(name, fn, seed, options.trials)
            options.save_case(name, str(seed), found)


def _routed(name: str, fn: Any, seed: int, trials: int) -> dict[str, Any]:
    params = trained(name, seed, steps=250)
    inputs, labels = textures(1000 + seed, 600)
    begin = time.process_time()
    found = accelerator.route(fn, (params,), inputs, labels, trials=trials, seed=seed)
    searched = time.process_time() - begin
    tests, right = textures(2000 + seed, 2000)
    begin = time.process_time()
    exact, routed = found.accuracies_on(tests, right)
    inference = (time.process_time() - begin) / 4
    plain = float((np.asarray(fn(params, tests)).argmax(-1) == right).mean())
    return {
        "float_accuracy": plain,
        "exact_accuracy": exact,
        "routed_accuracy": routed,
        "power": found.figures.power,
        "area": found.figures.area,
        "time": found.figures.time,
        "search_s": searched,
        "thousand_images_s": inference,
        "curve": [list(point) for point in found.curve],
    }


if __name__ == "__main__":
    main()
