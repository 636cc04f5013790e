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

from meshwright.errors import MeshwrightError as MeshwrightError
from meshwright.errors import MeshwrightWarning as MeshwrightWarning
from meshwright.machine import Machine as Machine
from meshwright.machine import Mesh as Mesh
from meshwright.machine import machine as machine

if TYPE_CHECKING:
    from meshwright.app.autoplan import autoplan as autoplan
    from meshwright.app.explain.diff import diff as diff
    from meshwright.app.interop.logical_axes import (
        from_logical_axes as from_logical_axes,
    )
    from meshwright.app.partition import partition as partition
    from meshwright.app.partitioned import Partitioned as Partitioned
    from meshwright.app.phases import plan_phases as plan_phases
    from meshwright.app.plan import Plan as Plan
    from meshwright.features import nnx as nnx
    from meshwright.features.allocate import Buffer as Buffer
    from meshwright.features.allocate import allocate as allocate
    from meshwright.features.autodiff.linearize import linearize as linearize
    from meshwright.features.checkpoint import Checkpoints as Checkpoints
    from meshwright.features.chips.partition_chips import (
        partition_chips as partition_chips,
    )
    from meshwright.features.cluster.replicate.replicator import (
        Replicator as Replicator,
    )
    from meshwright.features.cluster.start import cluster as cluster
    from meshwright.features.collectives.hierarchy import placements as placements
    from meshwright.features.collectives.reductions import reductions as reductions
    from meshwright.features.deploy.deploy import deploy as deploy
    from meshwright.features.pipeline.pipelined import pipeline as pipeline
    from meshwright.features.pipeline.plan.pipeline_plan import (
        PipelinePlan as PipelinePlan,
    )
    from meshwright.features.sparse.sparse import sparse as sparse
    from meshwright.features.tune.tune import tune as tune
    from meshwright.features.tune.tune import with_layouts as with_layouts
    from meshwright.jax_private import gpu_for_cudnn as gpu_for_cudnn
    from meshwright.partitioner.tactics import FIRST_DIVISIBLE as FIRST_DIVISIBLE
    from meshwright.partitioner.tactics import REPLICATED as REPLICATED
    from meshwright.partitioner.tactics import by_levels as by_levels
    from meshwright.partitioner.tactics import cut as cut
    from meshwright.partitioner.tactics import data_parallel as data_parallel
    from meshwright.partitioner.tactics import expert_parallel as expert_parallel
    from meshwright.partitioner.tactics import fsdp as fsdp
    from meshwright.partitioner.tactics import inference as inference
    from meshwright.partitioner.tactics import megatron as megatron
    from meshwright.partitioner.tactics import pin as pin
    from meshwright.partitioner.tactics import recompute as recompute
    from meshwright.partitioner.tactics import replicate as replicate
    from meshwright.partitioner.tactics import sequence_parallel as sequence_parallel
    from meshwright.partitioner.tactics import shard as shard
    from meshwright.partitioner.tactics import zero as zero
    from meshwright.planner.overlap.overlap import overlap as overlap
    from meshwright.planner.tactics.auto import auto as auto
    from meshwright.program.capture import iterations as iterations
    from meshwright.program.capture import stage as stage
    from meshwright.program.capture import tag as tag
    from meshwright.program.ops import Cost as Cost
    from meshwright.program.ops import rule as rule
    from meshwright.run.local.calibrate import calibrate as calibrate

__version__ = "0.1.0"

_HOMES = {
    "app.autoplan": ("autoplan",),
    "features.chips.partition_chips": ("partition_chips",),
    "features.cluster.start": ("cluster",),
    "features.deploy.deploy": ("deploy",),
    "app.explain.diff": ("diff",),
    "app.interop.logical_axes": ("from_logical_axes",),
    "app.partition": ("partition",),
    "app.partitioned": ("Partitioned",),
    "features.pipeline.plan.pipeline_plan": ("PipelinePlan",),
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
    "program.capture": ("iterations", "stage", "tag"),
    "program.ops": ("Cost", "rule"),
    "features.checkpoint": ("Checkpoints",),
    "run.local.calibrate": ("calibrate",),
    "features.allocate": ("Buffer", "allocate"),
    "jax_private": ("gpu_for_cudnn",),
}  # fmt: skip
"""The public names, listed under the module that defines them. A module is imported when
one of its names is first used, so that `import meshwright` alone does not import JAX.
"""

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    *("Machine", "Mesh", "MeshwrightError", "MeshwrightWarning", "machine", "nnx"),
    *(name for names in _HOMES.values() for name in names),
]


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
