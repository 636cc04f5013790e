"""Collect data on tile sizes: random tilings of a kernel, compiled and timed by IREE."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from meshwright.errors import CompilerError, LearnedError
from meshwright.features.tune.collect.layouts import CollectionPlan
from meshwright.features.tune.collect.measurement_journal import MeasurementJournal
from meshwright.features.tune.iree.bench import KernelBench, thread_ns
from meshwright.features.tune.iree.find_kernels import find_kernels
from meshwright.features.tune.iree.kernel import CpuKernel, parse_kernel
from meshwright.features.tune.iree.program import IreeProgram
from meshwright.features.tune.iree.space import TileSpace
from meshwright.features.tune.iree.tiling import Tiling
from meshwright.features.tune.iree.toolchain import cpu_name, version
from meshwright.features.tune.learned import MeasuredGraph, Provenance, hlo_graph
from meshwright.features.tune.learned.features import tile_features

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
    folder.mkdir(parents=True, exist_ok=True)
    journal = MeasurementJournal.open(
        folder / f"{name}.partial.jsonl",
        {"program": kernel.fingerprint, "seed": plan.seed, "configs": plan.configs},
    )
    bench = KernelBench(kernel, plan.seed)
    kept = _build_all(bench, tilings, journal, on_progress)
    random = np.random.default_rng([plan.seed, 1])
    for number in range(plan.passes):
        on_progress(f"pass {number + 1} of {plan.passes}")
        for config in map(int, random.permutation(kept)):
            if (number, config) not in journal.times:
                key = tilings[config] if config else None
                ns = thread_ns(bench.programs[key])
                journal.add(number, config, ns)
    return _measured((name, hlo_graph(lowered)), bench, tilings, journal, kept)


def only_kernel(name: str, program: str) -> CpuKernel:
    """The kernel of a program that IREE compiles to exactly one kernel.

    Raises `LearnedError` if the program has another number of kernels.
    """
    found = find_kernels(program)
    if len(found.kernels) != 1:
        reasons = "; ".join(f"{d}: {why}" for d, why in found.others.items())
        raise LearnedError(
            f"{name} has {len(found.kernels)} kernels whose tiles can be chosen: give a "
            f"function of one matmul or convolution{f' ({reasons})' if reasons else ''}"
        )
    return next(iter(found.kernels))


def _build_all(
    bench: KernelBench,
    tilings: Sequence[Tiling],
    journal: MeasurementJournal,
    on_progress: Callable[[str], None],
) -> list[int]:
    """Compile all tilings but the first, the default.

    Returns the indices of the tilings that run, the default included.
    """
    kept = [0]
    for number, tiling in enumerate(tilings[1:], 1):
        on_progress(f"compiling {number} of {len(tilings) - 1}")
        if number in journal.errors:
            continue
        try:
            bench.build(tiling)
        except CompilerError as fault:
            journal.fail(number, f"{tiling}: {fault}"[:300])
            continue
        kept.append(number)
    return kept


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


def _measured(
    named: tuple[str, Any],
    bench: KernelBench,
    tilings: Sequence[Tiling],
    journal: MeasurementJournal,
    kept: Sequence[int],
) -> MeasuredGraph:
    """The record of all tilings that ran; times are those of the fastest passes."""
    last = max(pass_number for pass_number, _ in journal.times)
    pass_ns = tuple(
        tuple(journal.times[number, config] for config in kept)
        for number in range(last + 1)
    )
    runtime = np.min(np.array(pass_ns, np.int64), axis=0)
    features = [tiling_features(bench.kernel, tilings[number]) for number in kept]
    provenance = Provenance(
        compiler="IREE llvm-cpu",
        version=version(),
        host=cpu_name(),
        columns=COLUMNS,
        default=0,
        pass_ns=pass_ns,
        errors=tuple((str(c), error) for c, error in sorted(journal.errors.items())),
        kernel=kernel_record(bench.kernel),
    )
    name, graph = named
    return MeasuredGraph(
        name,
        graph,
        np.array(features, np.float32),
        None,
        runtime,
        np.full(len(kept), runtime[0]),
        provenance,
    )


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
