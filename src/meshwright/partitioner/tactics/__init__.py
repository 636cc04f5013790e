"""Tactics: the decisions that a user lists, applied one after another."""

from meshwright.partitioner.structure.workspace import Refusal, Workspace
from meshwright.partitioner.tactics.cut import CutOps, cut
from meshwright.partitioner.tactics.data_parallel import data_parallel
from meshwright.partitioner.tactics.expert_parallel import expert_parallel
from meshwright.partitioner.tactics.megatron import megatron
from meshwright.partitioner.tactics.primitives import (
    FIRST_DIVISIBLE,
    REPLICATED,
    Shard,
    replicate,
    shard,
)
from meshwright.partitioner.tactics.recompute import Recompute, recompute
from meshwright.partitioner.tactics.recorded import (
    Decisions,
    Recorded,
    decisions_of,
)
from meshwright.partitioner.tactics.sequence_parallel import sequence_parallel
from meshwright.partitioner.tactics.tactic import Tactic, TacticKind
from meshwright.partitioner.tactics.zero import fsdp, zero

__all__ = [
    "FIRST_DIVISIBLE",
    "REPLICATED",
    "CutOps",
    "Decisions",
    "Recompute",
    "Recorded",
    "Refusal",
    "Shard",
    "Tactic",
    "TacticKind",
    "Workspace",
    "cut",
    "data_parallel",
    "decisions_of",
    "expert_parallel",
    "fsdp",
    "megatron",
    "recompute",
    "replicate",
    "sequence_parallel",
    "shard",
    "zero",
]
