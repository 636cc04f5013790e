"""Fits the linear model of the cycles that the TPU compiler estimates for a kernel.

    python -m benchmarks train train_kernel_model --programs 64   # compiles, then fits
    python -m benchmarks train train_kernel_model --programs 0    # fits what was compiled

Blocks of other sizes than those of `tune_layouts.py` get random layouts and are compiled
for v5e and v6e. Each block is predicted by weights that were fitted to the others; a
program is predicted before its own kernels are known. Needs the TPU compiler
(`meshwright[tpu]`), and no TPU.
"""

import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from benchmarks import places
from benchmarks.harness import Options, benchmark, option
from benchmarks.tune.layout_blocks import SMALLER
from meshwright.errors import CompilerError
from meshwright.features.tune.compiler_server.server import CompilerServer, host_of
from meshwright.features.tune.layouts.kernel_costs import (
    Example,
    KernelCosts,
    examples_of,
)
from meshwright.features.tune.layouts.kernel_work import (
    expected_cycles,
    rates_of,
)
from meshwright.features.tune.layouts.kernels import HloKernel, read_kernels
from meshwright.features.tune.layouts.problem import choices_of, question_of
from meshwright.features.tune.layouts.sites import find_sites
from meshwright.features.tune.tune_layouts import machine_of, on_one_device, tuned_step

CHIPS = ("tpu-v5e", "tpu-v6e")
WEIGHTS = places.ROOT / "src/meshwright/features/tune/layouts/kernel_weights.json"
_LARGE = 0.3
"""Power of a kernel's cycles with which its relative error counts."""
_ROUNDS = 20

type Kernels = list[tuple[HloKernel, float]]


def collect(folder: Path, count: int, seed: int) -> None:
    """Compile programs with random layouts; keep their HLO before and after code."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    names = sorted(SMALLER)
    for number in range(count):
        name, chip = names[number % len(names)], CHIPS[number // len(names) % 2]
        decided = on_one_device(*SMALLER[name]().step())
        program, paths = decided.lowered.program, decided.captured.paths
        sites = {site.name: site for site in find_sites(program, paths)}
        changed = rng.sample(
            sorted(sites), min(len(sites), rng.choice((0, 1, 2, 4, 8)))
        )
        state = tuple(rng.choice(choices_of(sites[site])) for site in sorted(changed))
        question = question_of(program, sites, state, False)
        machine = machine_of(chip, 1)
        path = folder / f"{seed}-{number:03}-{name}-{chip}.json"
        if machine is None or path.exists():
            continue
        with CompilerServer(host_of(machine)) as server:
            try:
                answer = server.compile("", *tuned_step(decided).with_choices(question))
            except CompilerError as error:
                print(f"{path.stem}: {error}")
                continue
        path.write_text(json.dumps({k: answer[k] for k in ("optimized", "hlo")}))
        print(path.stem, flush=True)


def kernels_of(path: Path) -> Kernels:
    """The kernels of a compiled program that have an estimate, with their cycles."""
    texts = json.loads(path.read_text())
    machine = machine_of(path.stem[-len(CHIPS[0]) :], 1)
    assert machine is not None, "CHIPS are TPUs"
    kernels = read_kernels(texts["optimized"], rates_of(machine))
    cycles = {e.key: e.cycles for e in examples_of(kernels, texts["hlo"])}
    return [
        (kernel, cycles[kernel.key])
        for kernel in kernels
        if not kernel.unestimated_bytes and cycles[kernel.key] > 0
    ]


def fit(kernels: Kernels) -> dict[str, float]:
    """Weights, none negative, of least squared relative errors.

    The error is the difference of estimate and prediction over their geometric mean,
    by iterated least squares.
    """
    terms = sorted({term for kernel, _ in kernels for term in kernel.work})
    cycles = np.array([each for _, each in kernels])
    work = np.array([[k.work.get(t, 0.0) for t in terms] for k, _ in kernels])
    work = np.minimum(work / cycles[:, None], 50.0)
    large = (cycles / cycles.mean()) ** _LARGE
    scale = large
    for _ in range(_ROUNDS):
        weights, _ = nnls(work * scale[:, None], scale)
        scale = large / np.sqrt(np.maximum(work @ weights, 1e-9))
    return {
        term: round(float(weight), 4)
        for term, weight in zip(terms, weights, strict=True)
        if weight > 0
    }


def errors(programs: Sequence[Kernels], weights: dict[str, float]) -> np.ndarray:
    """Logarithms of estimate / guess for the new kernels of each program.

    Two columns: the linear model alone, and with the kernels of earlier programs.
    """
    rows, costs = [], KernelCosts()
    for program in programs:
        given = [(with_weights(kernel, weights), cycles) for kernel, cycles in program]
        if costs.examples:
            rows += [
                (
                    math.log(cycles) - kernel.features[0],
                    math.log(cycles / costs.guess(kernel)),
                )
                for kernel, cycles in given
                if kernel.key not in costs.known
            ]
        costs.learn(example_of(kernel, cycles) for kernel, cycles in given)
    return np.array(rows).reshape(-1, 2)


def with_weights(kernel: HloKernel, weights: dict[str, float]) -> HloKernel:
    """A kernel whose features have the cycles that these weights expect."""
    expected = math.log(expected_cycles(kernel.work, weights))
    return replace(kernel, features=(expected, *kernel.features[1:]))


def example_of(kernel: HloKernel, cycles: float) -> Example:
    return Example(kernel.key, kernel.kind, kernel.features, cycles)


def distinct(kernels: Kernels) -> Kernels:
    """The kernels without repetitions; those of two chips have different work."""
    return list({(k.key, *k.work.values()): (k, c) for k, c in kernels}.values())


@benchmark(
    option("--programs", type=int, default=64),
    option("--data", type=Path, default=Path("out/kernels")),
    out=WEIGHTS,
    seed=1,
)
def main(options: Options) -> None:
    collect(options.data, options.programs, options.seed)
    by_block: dict[str, list[Kernels]] = {}
    for path in sorted(options.data.glob("*.json")):
        block = path.stem.split("-", 2)[2]
        by_block.setdefault(block, []).append(kernels_of(path))
    found = []
    for block, programs in by_block.items():
        name = block.partition("-")[0]
        others = [
            kernel
            for other, given in by_block.items()
            if other.partition("-")[0] != name
            for program in given
            for kernel in program
        ]
        found.append(errors(programs, fit(distinct(others))))
    both = np.sqrt((np.concatenate(found) ** 2).mean(0))
    every = distinct([k for given in by_block.values() for p in given for k in p])
    print(f"{sum(map(len, by_block.values()))} programs, {len(every)} distinct kernels")
    print(f"error (root mean square of logarithms): {both[0]:.2f} alone, {both[1]:.2f}")
    note = "in cycles at the chip's peak rates; benchmarks/train/train_kernel_model.py"
    options.save({"note": note, "weights": fit(every)})


if __name__ == "__main__":
    main()
