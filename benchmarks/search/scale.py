"""Searches for thousands of devices: CPU seconds, memory, and plans beside experts'.

    python -m benchmarks search scale [--only llama3_405b] [--budget 15]

Each case runs in a process of its own: a search for a plan on one mesh, and one for a
pipeline. CPU seconds count the solver's process. `prediction gpu_steps` has the published
configuration of Llama 3 405B.
"""

from __future__ import annotations

import json
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import jax
import numpy as np

import meshwright as mw
from benchmarks.harness import ONLY, STORED, Options, benchmark, option
from benchmarks.prediction import published_gpt
from benchmarks.search import deepseek
from meshwright.errors import MeshwrightError

CASES = {
    "llama3_70b": (64, 512, 4096, 16_384),
    "llama3_405b": (8192, 16_384),
    "deepseek_v3": (2048,),
}
"""Numbers of H100, by program."""

LLAMA = partial(
    published_gpt.Model, vocab=128_256, sequence=8192, key_heads=8, is_llama=True,
    is_fused=True, recompute=True,
)  # fmt: skip
MODELS = {
    "llama3_70b": LLAMA(80, 8192, 64, d_ff=28_672),
    "llama3_405b": LLAMA(126, 16_384, 128, d_ff=53_248),
}
BATCH = 2048


def make(name: str) -> tuple[Any, tuple[Any, ...], float]:
    """A train step, its arguments, and the FLOPs of a step without recomputation.

    The FLOPs are 6 for each weight (of a token's experts) and token, and attention's.
    """
    if name == "deepseek_v3":
        fn, args = deepseek.target()
        routed = (deepseek.E - deepseek.CHOICES) * 3 * deepseek.D * 2048
        weights = _elements(args[0]["params"]) - deepseek.SPARSE * routed
        tokens, heads = deepseek.BATCH * deepseek.SEQUENCE, deepseek.N * 320
        return fn, args, 6 * tokens * (weights + 61 * deepseek.SEQUENCE * heads / 2)
    model, tokens = MODELS[name], BATCH * MODELS[name].sequence
    fn = partial(published_gpt.train_step, model, 1)
    return fn, published_gpt.arguments(model, BATCH), tokens * model.model_flops


def _elements(tree: Any) -> float:
    return float(sum(np.prod(x.shape, dtype=float) for x in jax.tree.leaves(tree)))


def cpu_s() -> float:
    """CPU seconds of this process and of the processes that it has waited for."""
    each = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in each)


def search_plan(name: str, chips: int, budget_s: float) -> dict[str, Any]:
    """The search for a plan on one mesh."""
    fn, args, flops = make(name)
    cpu, began = cpu_s(), time.monotonic()
    row: dict[str, Any] = {}
    try:
        plan = mw.autoplan(fn, args, machine="h100", chips=chips, budget_s=budget_s)
    except MeshwrightError as error:
        row["error"] = str(error)
    else:
        search = plan.search
        assert search is not None
        first = search.candidates[0]
        row |= {"step_s": plan.step_time_s, "plan": first.name, "mesh": str(plan.mesh)}
        row["mfu"] = flops / plan.step_time_s / chips / 989e12
        row |= {"meshes": search.num_meshes, "notes": list(search.notes)}
        row["experts_s"] = {
            f"{c.name} on {c.mesh}": c.step_time_s
            for c in search.candidates
            if c.fits and not c.name.startswith("auto")
        }
    return row | _used(cpu, began)


def search_pipeline(name: str, chips: int, budget_s: float) -> dict[str, Any]:
    """The search for a pipeline."""
    fn, args, flops = make(name)
    cpu, began = cpu_s(), time.monotonic()
    options = {"machine": "h100", "chips": chips, "budget_s": budget_s}
    try:
        plan = mw.autoplan(fn, args, pipeline=True, **options)
    except MeshwrightError as error:
        return {"error": str(error)} | _used(cpu, began)
    row = {"step_s": plan.step_time_s, "plan": str(plan).splitlines()}
    mfu = flops / plan.step_time_s / chips / 989e12
    return row | {"mfu": mfu} | _used(cpu, began)


def _used(cpu: float, began: float) -> dict[str, float]:
    """CPU seconds, wall seconds and peak bytes since readings of both clocks."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    used = {"cpu_s": cpu_s() - cpu, "wall_s": time.monotonic() - began}
    return used | {"peak_gb": (peak + child) / 1e6}


@benchmark(ONLY, option("--budget", type=float, default=15.0), out=STORED)
def main(options: Options) -> None:
    """Search the cases, and print one line for each."""
    for name, chips in ((name, n) for name, sizes in CASES.items() for n in sizes):
        case = f"{name} {chips}"
        if options.only not in case:
            continue
        for kind, search in (("mesh", search_plan), ("pipeline", search_pipeline)):
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                row = process.submit(search, name, chips, options.budget).result()
            options.save_case(kind, case, row)
            print(json.dumps(row, indent=1), flush=True)


if __name__ == "__main__":
    main()
