"""Meshwright: partitions JAX programs over meshes of devices and predicts their cost.

The package has nine subpackages. Each imports only from those below it in this list:

    cli          the commands of `meshwright`
    app          the public face: `partition`, `autoplan`, plans, reports, checks
    run          runs a plan on devices, and asks real compilers about it
    planner      searches for the best plan on a machine
    predict      simulates a step: time, memory, energy, cost
    partitioner  tactics, propagation of shardings, lowering to collectives
    program      the program: its ops, their sharding rules, and capture from JAX
    machine      chips, links and meshes, with presets
    search       search engines and the integer program, which know nothing of tensors

Begin reading with the docstrings of the subpackages from the bottom up; a user begins with
`app/partition.py`, which is the function that `mw.partition` calls.
"""

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
