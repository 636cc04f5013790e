"""Ops whose cost nobody knows, so that predictions of them are lower bounds."""

from meshwright.program.ir import Op
from meshwright.program.rules.pallas_work import kernel_of
from meshwright.program.rules.registry import Trait, has_trait, is_counted


def is_unpriced(op: Op) -> bool:
    """Whether predictions leave out work of the op, and are thus lower bounds.

    Only its operands and results are counted then, read and written once.
    """
    if op.bodies:
        return False
    if op.kind == "pallas_call":
        return kernel_of(op) is None
    return has_trait(op.kind, Trait.UNPRICED) or not is_counted(op.kind)
