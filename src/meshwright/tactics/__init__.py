"""Decisions that a person takes, one after another."""

from meshwright.tactics.primitives import (
    FIRST_DIVISIBLE,
    REPLICATED,
    Replicate,
    Shard,
    Tactic,
    first_divisible,
    replicate,
    shard,
)
from meshwright.tactics.workspace import Refusal, Workspace

__all__ = [
    "FIRST_DIVISIBLE",
    "REPLICATED",
    "Refusal",
    "Replicate",
    "Shard",
    "Tactic",
    "Workspace",
    "first_divisible",
    "replicate",
    "shard",
]
