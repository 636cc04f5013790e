"""Predicted memory of steps on 8 virtual CPU devices, compared with XLA's.

    python -m benchmarks prediction cpu_memory [--only TEXT] [--keep DIR] [--out FILE]

Compiles the small size of every program of the zoo, and published sizes with fewer layers
and images, under data parallelism, fsdp and the best schedule. Compared is what XLA
allocates on one device: arguments, results and temporaries, less the results that take the
memory of donated arguments. Nothing runs.

Resumable: cases in the results file are not compiled again, only predicted.
"""

from __future__ import annotations

import importlib
import os
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.harness import ONLY, STORED, Options, benchmark, option

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8 "
    "--xla_backend_optimization_level=0"  # after buffer assignment
)

import jax

import meshwright as mw
from meshwright.machine import load_machine
from zoo.catalogue import WORKLOADS
from zoo.workload import Target, Workload

WITHIN = 0.10
Built = tuple[Callable[..., Any], tuple[Any, ...]]

STRATEGIES = ("dp", "fsdp", "best")

SMALL: Mapping[str, tuple[str, dict[str, Any]]] = {
    "llm": ("gpt_125m", {"layers": 3, "batch": 16, "sequence": 512}),
    "vit": ("b_16", {"layers": 2, "batch": 32}),
    "mixer": ("s_32", {"layers": 2, "batch": 64}),
    "t5": ("small", {"layers": 2, "batch": 16}),
    "resnet": ("resnet_50", {"batch": 32}),
    "unet": ("ho_cifar10", {"batch": 32}),
    "gns": ("edges_8192", {}),
    "lstm": ("ptb_medium", {"batch": 32}),
    "ranking": ("web30k", {"batch": 1024}),
    "d4pg": ("humanoid", {"batch": 4096}),
    "primer": ("primer_small", {"layers": 2, "batch": 16}),
}
"""A published size by program, and the fields of it that are made smaller."""


@dataclass(frozen=True, slots=True)
class Case:
    """A program of the zoo, partitioned over eight devices.

    size: "tiny", or the name of a published one. strategy: one of `STRATEGIES`.
    """

    workload: Workload
    size: str
    target: Target
    strategy: str

    @property
    def name(self) -> str:
        """The key of the case in the results."""
        return f"{self.workload.name}.{self.size}/{self.strategy}"

    def step(self) -> tuple[mw.Partitioned, tuple[Any, ...]]:
        """The partitioned step and the shapes of its arguments.

        Published sizes donate their state; small sizes keep it.
        """
        fn, args = shapes_of(self.target)
        (first, _), *_ = self.workload.mesh.items()
        batch = mw.data_parallel(first, self.workload.batch)
        mesh, tactics = {
            "dp": ({first: 8}, [batch]),
            "fsdp": ({first: 8}, [batch, mw.fsdp(first)]),
            "best": (self.workload.mesh, self.workload.schedules[self.workload.best]),
        }[self.strategy]
        given_up = None if self.size == "tiny" else 0
        return mw.partition(fn, mesh, tactics, donate_argnums=given_up), args


@cache
def shapes_of(target: Target) -> Built:
    """The function of a target, and the shapes of its arguments."""
    found: list[Callable[..., Any]] = []

    def build() -> tuple[Any, ...]:
        fn, args = target()
        found.append(fn)
        return args

    try:
        args = jax.eval_shape(build)
    except (ValueError, jax.errors.TracerArrayConversionError):
        fn, args = target()  # some targets make weights by code that cannot be traced
        return fn, jax.eval_shape(lambda *leaves: leaves, *args)
    return found[0], args


def cases() -> Iterator[Case]:
    """Small sizes, then published sizes."""
    for workload in WORKLOADS:
        for strategy in STRATEGIES:
            yield Case(workload, "tiny", workload.tiny, strategy)
    by_name = {workload.name: workload for workload in WORKLOADS}
    for name, (size, changes) in SMALL.items():
        module = importlib.import_module(f"zoo.{name}")
        target = partial(module.targets[size], **changes)
        for strategy in STRATEGIES:
            yield Case(by_name[name], size, target, strategy)


def compile_case(case: Case, folder: Path | None) -> dict[str, int]:
    """Bytes that XLA assigns on one device, by purpose."""
    step, args = case.step()
    compiled = step.lower(*args).compile()
    told = compiled.memory_analysis()
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        name = case.name.replace("/", "_")
        (folder / f"{name}.hlo").write_text(compiled.as_text())
        assignment = told.serialized_buffer_assignment_proto
        (folder / f"{name}.buffers.pb").write_bytes(assignment)
    return {
        "arguments": told.argument_size_in_bytes,
        "results": told.output_size_in_bytes,
        "aliases": told.alias_size_in_bytes,
        "temporaries": told.temp_size_in_bytes,
    }


def allocated_bytes(told: Mapping[str, int]) -> int:
    """Bytes that a device needs for what XLA assigned."""
    return told["arguments"] + told["results"] + told["temporaries"] - told["aliases"]


def predicted_bytes(case: Case) -> int:
    """Bytes that a device needs by simulation."""
    step, args = case.step()
    return step.plan(*args).on(load_machine("cpu", 8)).peak_memory_bytes


def summarise(rows: Mapping[str, dict[str, Any]]) -> dict[str, float]:
    """The errors of all cases: median, and shares within limits."""
    errors = [abs(row["error"]) for row in rows.values()]
    return {
        "cases": len(errors),
        "median": statistics.median(errors),
        "within_10_percent": sum(e <= WITHIN for e in errors) / len(errors),
    }


@benchmark(
    ONLY,
    option("--keep", type=Path, help="folder for HLO and assignments"),
    out=STORED,
)
def main(options: Options) -> None:
    """Compile new cases, predict all, print and save."""
    known = options.stored({})
    rows: dict[str, dict[str, Any]] = dict(known.get("cases", {}))
    versions = {"jax": version("jax"), "jaxlib": version("jaxlib")}
    for case in cases():
        if options.only not in case.name:
            continue
        told = rows.get(case.name, {}).get("compiled")
        if told is None:
            told = compile_case(case, options.keep)
        predicted = predicted_bytes(case)
        error = predicted / allocated_bytes(told) - 1
        rows[case.name] = {
            "compiled": told, "predicted_bytes": predicted, "error": error
        }  # fmt: skip
        print(f"{100 * error:+7.1f} %  {case.name}", flush=True)
        found = {"versions": versions, "summary": summarise(rows), "cases": rows}
        options.save(found)
    for name, value in summarise(rows).items():
        print(f"{name:20} {value:.4g}")
    print("worst ten")
    for name, row in sorted(rows.items(), key=lambda r: -abs(r[1]["error"]))[:10]:
        print(f"{100 * row['error']:+7.1f} %  {name}  {row['compiled']}")


if __name__ == "__main__":
    main()
