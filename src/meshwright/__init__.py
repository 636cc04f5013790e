"""Meshwright: partitions JAX programs over meshes of devices and predicts their cost.

The core is layers. Each imports only from those below it in this list:

    cli          the commands of `meshwright`
    app          the public face: `partition`, `autoplan`, plans, reports, checks
    run          runs plans on local devices, and asks real compilers about them
    planner      searches for plans
    predict      simulates a step: time, memory, energy, cost
    partitioner  tactics, propagation of shardings, lowering to collectives
    program      the program: its ops, their sharding rules, and capture from JAX
    machine      chips, links and meshes, with presets
    learn        graph networks, ranking losses, PPO, training, which know no programs
    search       search engines and the integer program, which know nothing of tensors

On the core stand `features`, side by side: pipelines, clusters, checkpoints, training,
tuning, deployment and others. The core imports no feature; `registry.py` names what it
calls of them. Begin reading with the docstrings of the subpackages from the bottom up; a
user begins with `app/partition.py`, which is the function that `mw.partition` calls.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from meshwright.errors import MeshwrightError, MeshwrightWarning
from meshwright.machine import Machine, Mesh, machine

if TYPE_CHECKING:
    from meshwright.app.autoplan import autoplan
    from meshwright.app.explain.diff import diff
    from meshwright.app.interop.logical_axes import from_logical_axes
    from meshwright.app.partition import partition
    from meshwright.app.partitioned import Partitioned
    from meshwright.app.phases import plan_phases
    from meshwright.app.plan import Plan
    from meshwright.features import nnx
    from meshwright.features.allocate import Buffer, allocate
    from meshwright.features.autodiff.linearize import linearize
    from meshwright.features.checkpoint import Checkpoints
    from meshwright.features.chips.partition_chips import partition_chips
    from meshwright.features.cluster.replicate.replicator import Replicator
    from meshwright.features.cluster.start import cluster
    from meshwright.features.collectives.hierarchy import placements
    from meshwright.features.collectives.reductions import reductions
    from meshwright.features.deploy.deploy import deploy
    from meshwright.features.pipeline.pipelined import pipeline
    from meshwright.features.pipeline.planning.pipeline_plan import PipelinePlan
    from meshwright.features.sparse.sparse import sparse
    from meshwright.features.tune.tune import tune, with_layouts
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
    from meshwright.program.capture import stage, tag
    from meshwright.program.ops import rule
    from meshwright.run.local.calibrate import calibrate

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
    "PipelinePlan",
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
    "plan_phases",
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
    "features.chips.partition_chips": ("partition_chips",),
    "features.cluster.start": ("cluster",),
    "features.deploy.deploy": ("deploy",),
    "app.explain.diff": ("diff",),
    "app.interop.logical_axes": ("from_logical_axes",),
    "app.partition": ("partition",),
    "app.partitioned": ("Partitioned",),
    "features.pipeline.planning.pipeline_plan": ("PipelinePlan",),
    "features.pipeline.pipelined": ("pipeline",),
    "app.phases": ("plan_phases",),
    "app.plan": ("Plan",),
    "features.cluster.replicate.replicator": ("Replicator",),
    "features.tune.tune": ("tune", "with_layouts"),
    "features.autodiff.linearize": ("linearize",),
    "features.sparse.sparse": ("sparse",),
    "features.collectives.hierarchy": ("placements",),
    "partitioner.tactics": (
        "FIRST_DIVISIBLE", "REPLICATED", "by_levels", "cut", "data_parallel",
        "expert_parallel", "fsdp", "inference", "megatron", "pin", "recompute",
        "replicate", "sequence_parallel", "shard", "zero",
    ),
    "planner.tactics.auto": ("auto",),
    "features.collectives.reductions": ("reductions",),
    "planner.overlap.overlap": ("overlap",),
    "program.capture": ("stage", "tag"),
    "program.ops": ("rule",),
    "features.checkpoint": ("Checkpoints",),
    "run.local.calibrate": ("calibrate",),
    "features.allocate": ("Buffer", "allocate"),
}  # fmt: skip
"""The public names, listed under the module that defines them. A module is imported when
one of its names is first used, so that `import meshwright` alone does not import JAX.
"""


def __getattr__(name: str) -> Any:
    if name == "nnx":
        value = globals()[name] = import_module(f"{__name__}.features.nnx")
        return value
    for home, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(f"{__name__}.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
