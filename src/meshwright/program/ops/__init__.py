"""Definitions of all ops (factor rule, traits, work), one file per family of primitives."""

from meshwright.program.ops import families as _families  # noqa: F401  (registers the ops)
from meshwright.program.rules.builder import COLLECTIVES, Builder
from meshwright.program.rules.registry import known_ops, rule, rule_of
from meshwright.program.rules.rule import FactorRule, OpCut, einsum_rule, opaque_rule
from meshwright.program.rules.traits import Trait, has_trait, ops_with
from meshwright.program.rules.work import OpWork, work_of

__all__ = [
    "COLLECTIVES",
    "Builder",
    "FactorRule",
    "OpCut",
    "OpWork",
    "Trait",
    "einsum_rule",
    "has_trait",
    "known_ops",
    "opaque_rule",
    "ops_with",
    "rule",
    "rule_of",
    "work_of",
]
