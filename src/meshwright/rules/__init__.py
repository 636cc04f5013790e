"""Factor rules of all primitives, one file per family."""

from meshwright.rules import families as _families  # noqa: F401  (fills the table)
from meshwright.rules.builder import COLLECTIVES, Builder
from meshwright.rules.registry import known_ops, rule, rule_of
from meshwright.rules.repeated import DRAWN, HEAVY
from meshwright.rules.rule import Cut, FactorRule, einsum_rule, opaque_rule
from meshwright.rules.work import Work, work_of

__all__ = [
    "COLLECTIVES",
    "DRAWN",
    "HEAVY",
    "Builder",
    "Cut",
    "FactorRule",
    "Work",
    "einsum_rule",
    "known_ops",
    "opaque_rule",
    "rule",
    "rule_of",
    "work_of",
]
