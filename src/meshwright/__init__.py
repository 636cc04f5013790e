"""Meshwright: partitions JAX programs over meshes of devices and predicts their cost.

The package has ten subpackages. Each imports only from those below it in this list:

    cli          the commands of `meshwright`
    app          the public face: `partition`, `pipeline`, `autoplan`, reports, checks
    compile      differentiates, makes sparse code, tunes layouts and tiles, deploys
    run          runs plans and pipelines on devices, and asks real compilers about them
    planner      searches for plans, pipeline stages, and partitions over chips
    predict      simulates a step and schedules of stages: time, memory, energy, cost
    partitioner  tactics, propagation of shardings, lowering to collectives, stages
    program      the program: its ops, their sharding rules, and capture from JAX
    machine      chips, links and meshes, with presets
    search       search engines and the integer program, which know nothing of tensors

Begin reading with the docstrings of the subpackages from the bottom up; a user begins with
`app/partition.py`, which is the function that `mw.partition` calls.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from meshwright.errors import MeshwrightError, MeshwrightWarning
from meshwright.machine import Machine, Mesh, machine

if TYPE_CHECKING:
    from meshwright.app import nnx
    from meshwright.app.autoplan import autoplan
    from meshwright.app.chips import partition_chips
    from meshwright.app.cluster import cluster
    from meshwright.app.deploy.deploy import deploy
    from meshwright.app.explain.diff import diff
    from meshwright.app.interop.logical_axes import from_logical_axes
    from meshwright.app.partition import Partitioned, partition
    from meshwright.app.pipeline.pipelined import pipeline
    from meshwright.app.plan import Plan
    from meshwright.app.replicate.replicator import Replicator
    from meshwright.app.tune import tune, with_layouts
    from meshwright.compile.autodiff.linearize import linearize
    from meshwright.compile.sparse.sparse import sparse
    from meshwright.machine.hierarchy import placements
    from meshwright.partitioner.tactics import (
        FIRST_DIVISIBLE,
        REPLICATED,
        by_levels,
        cut,
        data_parallel,
        expert_parallel,
        fsdp,
        inference,
        megatron,
        pin,
        recompute,
        replicate,
        sequence_parallel,
        shard,
        zero,
    )
    from meshwright.planner.overlap.overlap import overlap
    from meshwright.planner.tactics.auto import auto
    from meshwright.predict.reductions import reductions
    from meshwright.program.capture import stage, tag
    from meshwright.program.ops import rule
    from meshwright.run.checkpoint import Checkpoints
    from meshwright.run.local.calibrate import calibrate
    from meshwright.search.allocation import Buffer, allocate

__version__ = "0.1.0"

__all__ = [
    "FIRST_DIVISIBLE",
    "REPLICATED",
    "Buffer",
    "Checkpoints",
    "Machine",
    "Mesh",
    "MeshwrightError",
    "MeshwrightWarning",
    "Partitioned",
    "Plan",
    "Replicator",
    "allocate",
    "auto",
    "autoplan",
    "by_levels",
    "calibrate",
    "cluster",
    "cut",
    "data_parallel",
    "deploy",
    "diff",
    "expert_parallel",
    "from_logical_axes",
    "fsdp",
    "inference",
    "linearize",
    "machine",
    "megatron",
    "nnx",
    "overlap",
    "partition",
    "partition_chips",
    "pin",
    "pipeline",
    "placements",
    "recompute",
    "reductions",
    "replicate",
    "rule",
    "sequence_parallel",
    "shard",
    "sparse",
    "stage",
    "tag",
    "tune",
    "with_layouts",
    "zero",
]

_HOMES = {
    "app.autoplan": ("autoplan",),
    "app.chips": ("partition_chips",),
    "app.cluster": ("cluster",),
    "app.deploy.deploy": ("deploy",),
    "app.explain.diff": ("diff",),
    "app.interop.logical_axes": ("from_logical_axes",),
    "app.partition": ("Partitioned", "partition"),
    "app.pipeline.pipelined": ("pipeline",),
    "app.plan": ("Plan",),
    "app.replicate.replicator": ("Replicator",),
    "app.tune": ("tune", "with_layouts"),
    "compile.autodiff.linearize": ("linearize",),
    "compile.sparse.sparse": ("sparse",),
    "machine.hierarchy": ("placements",),
    "partitioner.tactics": (
        "FIRST_DIVISIBLE", "REPLICATED", "by_levels", "cut", "data_parallel",
        "expert_parallel", "fsdp", "inference", "megatron", "pin", "recompute",
        "replicate", "sequence_parallel", "shard", "zero",
    ),
    "planner.tactics.auto": ("auto",),
    "predict.reductions": ("reductions",),
    "planner.overlap.overlap": ("overlap",),
    "program.capture": ("stage", "tag"),
    "program.ops": ("rule",),
    "run.checkpoint": ("Checkpoints",),
    "run.local.calibrate": ("calibrate",),
    "search.allocation": ("Buffer", "allocate"),
}  # fmt: skip
"""The public names, listed under the module that defines them. A module is imported when
one of its names is first used, so that `import meshwright` alone does not import JAX.
"""


def __getattr__(name: str) -> Any:
    if name == "nnx":
        value = globals()[name] = import_module(f"{__name__}.app.nnx")
        return value
    for home, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(f"{__name__}.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
