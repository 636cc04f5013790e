"""Tactics: the sharding decisions that a user lists, applied one after another.

Begin reading at `tactic.py`, then `primitives.py`. `Workspace.cut`
(`partitioner/structure/workspace.py`) shards dims for them and words refusals.
"""

from meshwright.partitioner.structure.workspace import Workspace
from meshwright.partitioner.tactics.by_levels import ByLevels, by_levels
from meshwright.partitioner.tactics.cut import CutOps, cut
from meshwright.partitioner.tactics.data_parallel import data_parallel
from meshwright.partitioner.tactics.expert_parallel import expert_parallel
from meshwright.partitioner.tactics.inference import inference
from meshwright.partitioner.tactics.megatron import megatron
from meshwright.partitioner.tactics.pin import Pin, pin, pin_all
from meshwright.partitioner.tactics.primitives import (
    FIRST_DIVISIBLE,
    REPLICATED,
    Shard,
    replicate,
    shard,
)
from meshwright.partitioner.tactics.recompute import Recompute, recompute
from meshwright.partitioner.tactics.recorded import Recorded, decisions_of
from meshwright.partitioner.tactics.sequence_parallel import sequence_parallel
from meshwright.partitioner.tactics.tactic import Tactic, TacticKind, as_code
from meshwright.partitioner.tactics.zero import fsdp, zero

__all__ = [
    "FIRST_DIVISIBLE",
    "REPLICATED",
    "ByLevels",
    "CutOps",
    "Pin",
    "Recompute",
    "Recorded",
    "Shard",
    "Tactic",
    "TacticKind",
    "Workspace",
    "as_code",
    "by_levels",
    "cut",
    "data_parallel",
    "decisions_of",
    "expert_parallel",
    "fsdp",
    "inference",
    "megatron",
    "pin",
    "pin_all",
    "recompute",
    "replicate",
    "sequence_parallel",
    "shard",
    "zero",
]
