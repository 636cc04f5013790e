"""Designs searched for programs, against TPU v3 at 7 nm: performance per peak power.

Published: FAST (Zhang et al., ASPLOS 2022), 3.7x on average with a design for each program,
2.4x with one for all, over a TPU v3 shrunk to its node, by models that are not public.
A program whose figures are stored, of as many trials of the same engine, is not repeated.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.codesign import accelerator as acc
from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.search.programs import TracedTargets
from meshwright.features.codesign.accelerator.search.worth import Worth

HOME = "benchmarks.codesign.chip_programs"
PROGRAMS = ("b0", "b3", "b7", "bert_base", "bert_large", "resnet50", "lstm")


@benchmark(
    option("--trials", type=int, default=500, help="designs that each search tries"),
    option("--engine", default="memetic", help="of the searches for designs"),
    option("--programs", default=",".join(PROGRAMS), help="names, with commas"),
    seed=0,
    out=STORED,
)
def main(options: Options) -> None:
    """Print perf/TDP of the best design for each program, and of one for all."""
    names = options.programs.split(",")
    gains: list[float] = []
    for name in names:
        stored = options.stored_part("single").get(name, {})
        if not is_same(options, stored):
            found = search(options, [name])
            stored = figures(found) | parts(found, name) | effort(options)
            options.save_case("single", name, stored)
        gains.append(stored["perf_per_tdp"])
    mean = math.exp(math.fsum(map(math.log, gains)) / len(gains))
    options.save_case("single", "mean", {"perf_per_tdp": mean})
    if not is_same(options, options.stored_part("suite").get("all", {})):
        found = search(options, names)
        options.save_case("suite", "all", figures(found) | effort(options))


def effort(options: Options) -> dict[str, Any]:
    """What a search spends."""
    return {"trials": options.trials, "engine": options.engine, "seed": options.seed}


def is_same(options: Options, stored: Mapping[str, Any]) -> bool:
    """Whether stored figures are of a search with the same effort."""
    return effort(options).items() <= stored.items()


def search(options: Options, names: Sequence[str]) -> acc.FoundDesign:
    """The best design for programs within area and peak power of the baseline."""
    base = acc.die_shrunk()
    return acc.search_design(
        [f"{HOME}:{name}" for name in names],
        area_mm2=base.area_mm2,
        tdp_w=base.tdp_w,
        engine=options.engine,
        trials=options.trials,
        seed=options.seed,
    )


def figures(found: acc.FoundDesign) -> dict[str, Any]:
    """Figures of the found design relative to the baseline, and its main numbers."""
    chip = found.design.chip
    return {
        **{name: float(value) for name, value in found.trial.values.items()},
        "pes": chip.num_pes,
        "rows": chip.array[0],
        "columns": chip.array[1],
        "global_mib": chip.global_bytes >> 20,
        "batches": found.batches,
    }


def parts(found: acc.FoundDesign, name: str) -> dict[str, float]:
    """The factors of the gain: datapath and mapping at the baseline's batch, batch, fusion.

    They multiply to the whole gain. The batch is the baseline's best of those that the
    found design can hold.
    """
    base = acc.die_shrunk()
    programs = TracedTargets([f"{HOME}:{name}"])
    apart = Worth(programs, base, is_fused=False)
    whole = Worth(programs, base)
    rated: dict[int, tuple[float, float]] = {}
    for size in (1, 8, 64, 256):
        with contextlib.suppress(AcceleratorError):  # beyond the main memory
            sized = (each.changed(batch=size) for each in (base, found.design))
            of_base, of_found = (apart.of(each)["perf_per_tdp"] for each in sized)
            rated[size] = of_base, of_found
    _, datapath = max(rated.values())
    batch = apart.of(found.design)["perf_per_tdp"]
    fused = whole.of(found.design)["perf_per_tdp"]
    return {
        "datapath": datapath,
        "by_batch": batch / datapath,
        "by_fusion": fused / batch,
    }


if __name__ == "__main__":
    main()
