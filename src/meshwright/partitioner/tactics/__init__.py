"""Tactics: the decisions that a user lists, applied one after another."""

from meshwright.partitioner.structure.structure import Structure, find_structure
from meshwright.partitioner.structure.workspace import Refusal, Workspace
from meshwright.partitioner.tactics.cut import CutOps, cut
from meshwright.partitioner.tactics.data_parallel import DataParallel, data_parallel
from meshwright.partitioner.tactics.expert_parallel import (
    ExpertParallel,
    expert_parallel,
)
from meshwright.partitioner.tactics.fsdp import FullySharded, fsdp
from meshwright.partitioner.tactics.megatron import Megatron, megatron
from meshwright.partitioner.tactics.primitives import (
    FIRST_DIVISIBLE,
    REPLICATED,
    Replicate,
    Shard,
    first_divisible,
    replicate,
    shard,
)
from meshwright.partitioner.tactics.recompute import Recompute, recompute
from meshwright.partitioner.tactics.recorded import (
    Decisions,
    Recorded,
    decisions_of,
)
from meshwright.partitioner.tactics.sequence_parallel import (
    SequenceParallel,
    sequence_parallel,
)
from meshwright.partitioner.tactics.tactic import Tactic, TacticKind
from meshwright.partitioner.tactics.zero import Zero, zero

__all__ = [
    "FIRST_DIVISIBLE",
    "REPLICATED",
    "CutOps",
    "DataParallel",
    "Decisions",
    "ExpertParallel",
    "FullySharded",
    "Megatron",
    "Recompute",
    "Recorded",
    "Refusal",
    "Replicate",
    "SequenceParallel",
    "Shard",
    "Structure",
    "Tactic",
    "TacticKind",
    "Workspace",
    "Zero",
    "cut",
    "data_parallel",
    "decisions_of",
    "expert_parallel",
    "find_structure",
    "first_divisible",
    "fsdp",
    "megatron",
    "recompute",
    "replicate",
    "sequence_parallel",
    "shard",
    "zero",
]
