"""Definitions of all ops, one file per family of JAX primitives.

A definition has a factor rule (how dims can be sharded), traits (such as being
elementwise) and a count of the op's arithmetic work. The docstring of `program/rules`
says how to add an op.
"""

from importlib import import_module
from pkgutil import walk_packages

from meshwright.program.rules.builder import COLLECTIVES, Builder
from meshwright.program.rules.registry import (
    Cost,
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

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)  # registers the ops of one family

__all__ = [
    "COLLECTIVES",
    "Builder",
    "Cost",
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
