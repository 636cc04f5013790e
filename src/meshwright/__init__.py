"""Meshwright: partitions JAX programs over device meshes, and says what it costs."""

from meshwright.app import CheckReport, Partitioned, Plan, autoplan, partition
from meshwright.errors import MeshwrightError
from meshwright.machine import Machine, Mesh, machine
from meshwright.partitioner.tactics import (
    FIRST_DIVISIBLE,
    REPLICATED,
    cut,
    data_parallel,
    expert_parallel,
    fsdp,
    megatron,
    recompute,
    replicate,
    sequence_parallel,
    shard,
    zero,
)
from meshwright.planner.tactics.auto import auto
from meshwright.program.capture import tag
from meshwright.program.ops import rule
from meshwright.run.local.calibrate import calibrate

__all__ = [
    "FIRST_DIVISIBLE",
    "REPLICATED",
    "CheckReport",
    "Machine",
    "Mesh",
    "MeshwrightError",
    "Partitioned",
    "Plan",
    "auto",
    "autoplan",
    "calibrate",
    "cut",
    "data_parallel",
    "expert_parallel",
    "fsdp",
    "machine",
    "megatron",
    "partition",
    "recompute",
    "replicate",
    "rule",
    "sequence_parallel",
    "shard",
    "tag",
    "zero",
]
