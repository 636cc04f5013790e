"""Calls back into Python: they see whole operands, and effects run on one device."""

from __future__ import annotations

from meshwright.program.ir import Op
from meshwright.program.rules.registry import rule
from meshwright.program.rules.rule import FactorRule, opaque_rule
from meshwright.program.rules.traits import Trait


@rule("debug_callback", "debug_print", "io_callback")
def effect(op: Op) -> FactorRule:
    """Whole: the effect happens once, on the first device of the mesh."""
    return opaque_rule(op, "an effect runs once, on whole operands")


@rule("pure_callback", traits=(Trait.STANDALONE,))
def pure(op: Op) -> FactorRule:
    """Whole: nothing is known of the function; every device calls it."""
    return opaque_rule(op, "nothing is known of the function that it calls")
