"""Definitions of all ops (factor rule, traits, work), one file per family of primitives."""

from meshwright.program.ops import families as _families  # noqa: F401  (registers the ops)
from meshwright.program.rules.builder import COLLECTIVES, Builder
from meshwright.program.rules.registry import (
    OpWork,
    Trait,
    has_trait,
    known_ops,
    ops_with,
    rule,
    rule_of,
    work_of,
)
from meshwright.program.rules.rule import FactorRule, OpCut, einsum_rule, opaque_rule

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
