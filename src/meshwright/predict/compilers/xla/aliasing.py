"""In whose place the results of a unit may come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from meshwright.predict.compilers.cpu.library_calls import in_step
from meshwright.predict.compilers.rules import Rules
from meshwright.predict.compilers.xla.dataflow import Flow
from meshwright.predict.compilers.xla.fusion import FusionKind
from meshwright.predict.compilers.xla.producers import Fed
from meshwright.program.analysis.accumulators import loop_carries
from meshwright.program.ir import Op, Value
from meshwright.program.ops import Trait, has_trait


def overwritten(
    op: Op, kind: FusionKind, fed: Fed, flow: Flow, rules: Rules
) -> tuple[Value, ...]:
    """Operands whose memory the result takes over, if they are read no more.

    fed: what `op`, the root of the unit, computes itself and reads.
    """
    operands = flow.operands
    if not rules.calls_library:
        if not rules.overwrites:
            return ()
        if op.kind == "all_reduce":
            return tuple(operands[op])
        if kind is not FusionKind.LOOP:
            return ()
    if has_trait(op.kind, Trait.SCATTERS):
        return tuple(operands[op][:1])
    chain = [(each, operands[each]) for each in (*fed.ops, op)]
    return in_step(fed.reads, chain)


def replaced(op: Op, flow: Flow) -> dict[Value, Value]:
    """By result of a region that comes in the place of an operand, that operand.

    None is replaced that a loop reads in every turn as well.
    """
    pairs = [
        (op.results[result], operand)
        for position, result, _ in loop_carries(op)
        if (operand := flow.operand(op, position)) is not None
    ]
    carried = Counter(operand for _, operand in pairs)
    others = Counter(flow.operands[op]) - carried
    return {result: operand for result, operand in pairs if operand not in others}


def in_place(
    op: Op, kind: FusionKind, reads: Sequence[Value], flow: Flow
) -> Value | None:
    """The operand of the result's size, for what may overwrite it.

    An update of a slice does; a scatter does not, and elementwise results only where
    the caller gave the memory up.
    """
    if op.kind == "dynamic_update_slice":
        first = flow.operands[op][0]
        return first if first in reads else None
    if kind is not FusionKind.LOOP:
        return None
    (result, *_) = op.results
    for value in reads:
        if value.shape == result.shape and value.dtype == result.dtype:
            return value
    return None
