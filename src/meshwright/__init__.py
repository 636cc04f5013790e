"""Meshwright: partitions JAX programs over device meshes, and says what it costs."""

from meshwright.autoplan import auto, autoplan
from meshwright.capture import tag
from meshwright.errors import MeshwrightError
from meshwright.machine import Machine, Mesh, machine
from meshwright.plan import CheckReport, Partitioned, Plan, partition
from meshwright.rules import rule
from meshwright.runtime.calibrate import calibrate
from meshwright.tactics import (
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
