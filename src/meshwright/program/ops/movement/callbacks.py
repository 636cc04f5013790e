"""Callbacks into Python: they receive whole operands, and effects run on one device."""

from __future__ import annotations

from meshwright.program.ir import Op
from meshwright.program.rules.registry import rule
from meshwright.program.rules.rule import FactorRule, opaque_rule
from meshwright.program.rules.traits import Trait


@rule("debug_callback", "debug_print", "io_callback")
def effect(op: Op) -> FactorRule:
    """The opaque rule of effects, which run once, on the first device of the mesh."""
    return opaque_rule(op, "its effect runs once, on whole operands")


@rule("pure_callback", traits=(Trait.STANDALONE,))
def pure(op: Op) -> FactorRule:
    """The opaque rule of an unknown function, which every device calls."""
    return opaque_rule(op, "the function that it calls is unknown")
