"""Searches for thousands of devices: CPU seconds, memory, and plans beside experts'.

    python -m benchmarks search scale [--only llama3_405b] [--budget 15]

Each case runs in a process of its own: a search for a plan on one mesh, and one for a
pipeline. CPU seconds count the solver's process. Llama 3 405B also gets the configuration
of its paper (2024, table 4: TP 8, PP 16, DP 64 on 8,192 H100, 43 % MFU), with 32
microbatches of 64 sequences, 1F1B and interleaved.
"""

from __future__ import annotations

import json
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import jax
import numpy as np

import meshwright as mw
from benchmarks.harness import ONLY, STORED, Options, benchmark, option
from benchmarks.papers.pipeline import best_of, fixed_plan
from benchmarks.search import deepseek
from meshwright.errors import MeshwrightError
from meshwright.features.pipeline.batch_sizes import ResizableStep
from meshwright.features.pipeline.planning.interleaving import CHUNKS, Interleaving
from meshwright.features.pipeline.planning.pipeline_planner import PipelinePlanner
from meshwright.features.pipeline.planning.pipeline_task import PipelineTask
from meshwright.machine import load_machine
from zoo import llm

CASES = {
    "llama3_70b": (64, 512, 4096, 16_384),
    "llama3_405b": (8192, 16_384),
    "deepseek_v3": (2048,),
}
"""Numbers of H100, by program."""

PUBLISHED = {("llama3_405b", 8192): (64, 8, 16, 32)}
"""Published configurations: sizes of "data" and "model", submeshes, and microbatches."""


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
    config = llm.SIZES[name]
    (fn, args) = llm.targets[name]()
    tokens, width = config.batch * config.sequence, config.heads * config.head_width
    weights = _elements(args[0].params)
    attention = config.layers * 2 * config.sequence * width
    return fn, args, 6 * tokens * (weights + attention)


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
    """The search for a pipeline, and the published configuration beside it."""
    fn, args, flops = make(name)
    cpu, began = cpu_s(), time.monotonic()
    step, machine = ResizableStep(fn, args), load_machine("h100", None, chips)
    task = PipelineTask(
        name, step.capture, step.batch, machine, machine.chip.usable_bytes
    )
    try:
        planner = PipelinePlanner(task)
        plan = planner.best()
    except MeshwrightError as error:
        return {"error": str(error)} | _used(cpu, began)
    rate = flops / chips / 989e12
    row = {"step_s": plan.step_time_s, "mfu": rate / plan.step_time_s}
    row = row | {"plan": str(plan).splitlines()} | _used(cpu, began)
    published = PUBLISHED.get((name, chips))
    if published is not None:
        row["published"] = rows = _published(planner, *published)
        row["published_mfu"] = {k: rate / s for k, s in rows.items() if s}
    return row


def _published(
    planner: PipelinePlanner, data: int, model: int, num: int, count: int
) -> dict[str, float | None]:
    """Seconds of a step of a configuration, by schedule; `None` if it does not fit.

    Stages are as equal as the planner's layers allow, and have the fastest strategies.
    """
    stages = ((data, model, 1.0),) * num
    flat = best_of([lambda: fixed_plan(planner, stages, count)])
    found = {"1f1b": flat if isinstance(flat, float) else None}
    options = [
        o
        for o in planner.options(count)
        if (o.data, o.priced.strategy.model) == (data, model)
        and o.priced.strategy.batch_axes == ("data",)
    ]
    for chunks in CHUNKS:
        if num * chunks <= len(planner.starts):
            interleaving = Interleaving(tuple(options), num, chunks, count)
            plan = planner.interleaved_plan(interleaving)
            found[f"interleaved, {chunks} each"] = plan and plan.step_time_s
    return found


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
