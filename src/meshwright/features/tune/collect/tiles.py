"""Collect data on tile sizes: random tilings of a kernel, compiled and timed by IREE."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from meshwright.errors import LearnedError
from meshwright.features.tune.collect.collection_run import (
    CollectionPlan,
    CollectionRun,
)
from meshwright.features.tune.iree.bench import KernelBench, thread_ns
from meshwright.features.tune.iree.find_kernels import find_kernels
from meshwright.features.tune.iree.kernel import CpuKernel, parse_kernel
from meshwright.features.tune.iree.program import IreeProgram
from meshwright.features.tune.iree.space import TileSpace
from meshwright.features.tune.iree.tiling import Tiling
from meshwright.features.tune.iree.toolchain import version
from meshwright.features.tune.learned.features import tile_features
from meshwright.features.tune.learned.hlo_graph import hlo_graph
from meshwright.features.tune.learned.measured_graph import MeasuredGraph

COLUMNS = (
    "kernel bounds: vector_common_parallel; output bounds: distribution; "
    "input bounds: vector_reduction; loops of the root op in order, without those that a "
    "level does not tile"
)


def collect_tiles(
    name: str,
    fn: Callable[..., Any],
    args: Sequence[Any],
    plan: CollectionPlan,
    folder: Path,
    on_progress: Callable[[str], None] = lambda text: None,
) -> MeasuredGraph:
    """Compile and time a function's only kernel with random tile sizes, by IREE.

    Returns the function's graph with the measured times; IREE's default comes first.
    Every failed configuration and every time is kept in `NAME.partial.jsonl`, and is
    not repeated if the collection is started again. IREE's default has to compute what
    JAX computes, and every configuration what the default computes.
    """
    lowered = jax.jit(fn, keep_unused=True).lower(*args)
    kernel = only_kernel(name, lowered.as_text())
    program = IreeProgram.of(fn, args)
    if not program.is_right(program.compile(), program.expected(fn)):
        raise LearnedError(f"{name}: IREE computes other numbers than JAX")
    default = kernel.default
    drawn = TileSpace.of(kernel).sample(plan.configs, plan.seed)
    tilings = [default, *(t for t in drawn if t != default)][: plan.configs]
    path = folder / f"{name}.partial.jsonl"
    run = CollectionRun.begin(path, kernel.fingerprint, plan, on_progress)
    bench = KernelBench(kernel, plan.seed)

    def build(number: int) -> bool:
        bench.build(tilings[number] if number else None)
        return True

    def time_one(number: int) -> tuple[int]:
        return (thread_ns(bench.programs[tilings[number] if number else None]),)

    kept = run.build([f"{tiling}: " for tiling in tilings], build)
    run.time(kept, time_one)
    provenance = run.provenance(
        kept,
        lambda at: run.journal.times[at],
        compiler="IREE llvm-cpu",
        version=version(),
        columns=COLUMNS,
        kernel=kernel_record(kernel),
    )
    runtime = np.min(np.array(provenance.pass_ns, np.int64), axis=0)
    return MeasuredGraph(
        name,
        hlo_graph(lowered),
        np.array([tiling_features(kernel, tilings[i]) for i in kept], np.float32),
        None,
        runtime,
        np.full(len(kept), runtime[0]),
        provenance,
    )


def only_kernel(name: str, program: str) -> CpuKernel:
    """The kernel of a program that IREE compiles to exactly one kernel.

    Raises `LearnedError` if the program has another number of kernels.
    """
    dispatches = find_kernels(program)
    count = len(dispatches.kernels)
    if count != 1:
        reasons = "; ".join(f"{d}: {why}" for d, why in dispatches.others.items())
        raise LearnedError(
            f"{name} has {count} kernels whose tiles can be chosen: give a "
            f"function of one matmul or convolution{f' ({reasons})' if reasons else ''}"
        )
    return next(iter(dispatches.kernels))


def tiling_features(kernel: CpuKernel, tiling: Tiling) -> NDArray[np.float32]:
    """The 24 features of a tiling; `COLUMNS` describes them."""
    sums = [loop.is_reduction for loop in kernel.loops]
    return tile_features(
        [size for size, adds in zip(tiling.parallel, sums, strict=True) if not adds],
        [
            size
            for size, adds in zip(tiling.distribution, sums, strict=True)
            if not adds
        ],
        [size for size, adds in zip(tiling.reduction, sums, strict=True) if adds],
    )


def tiling_of(kernel: CpuKernel, features: Sequence[float]) -> Tiling:
    """The tiling that has these features; the inverse of `tiling_features`."""
    bounds = (features[0:6], features[8:14], features[16:22])
    parallel, distribution, reduction = (iter(map(int, sizes)) for sizes in bounds)
    rows = [
        (0, 0, next(reduction))
        if loop.is_reduction
        else (next(distribution), next(parallel), 0)
        for loop in kernel.loops
    ]
    return Tiling(*zip(*rows, strict=True))


def kernel_record(kernel: CpuKernel) -> Mapping[str, str]:
    """The texts that describe a kernel; `parse_kernel` reads them back."""
    return {
        "text": kernel.text,
        "root": kernel.root,
        "default": str(kernel.default),
        "pipeline": kernel.pipeline,
    }


def recorded_kernel(measured: MeasuredGraph) -> CpuKernel:
    """The kernel of a measured graph that `collect_tiles` made."""
    record = measured.provenance.kernel
    try:
        default = Tiling.parse(record["default"])
        return parse_kernel(record["text"], record["root"], default, record["pipeline"])
    except KeyError as missing:
        raise LearnedError(
            f"{measured.name} has no {missing} of an IREE kernel: only data sets of "
            "`meshwright learned collect --collection tile` have one"
        ) from None
