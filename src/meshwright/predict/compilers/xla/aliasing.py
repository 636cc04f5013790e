"""Aliasing: operands whose buffers the results of a fusion may take over."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.predict.compilers.hlo.dataflow import Flow
from meshwright.predict.compilers.hlo.fusion import FusionKind, kind_of
from meshwright.predict.compilers.hlo.policies import FusedOp
from meshwright.program.ir import Op, Value, itemsize_bytes
from meshwright.program.ops import Trait, has_trait, ops_with

_NOT_ELEMENTWISE = frozenset(
    {*ops_with(Trait.MOVES), *ops_with(Trait.SCATTERS), "copy_p", "iota"}
    - {"stack", "tile", "unstack"}  # not seen compiled
)
"""Ops that are fused into loops, but not element by element."""


def elementwise_aliases(root: FusedOp) -> tuple[Value, ...]:
    """Operands whose buffers the result may take if they are read no more.

    Each of their elements is needed at its own position alone. A scatter may take the
    buffer of what it starts from.
    """
    op, producers, flow, _ = root
    if has_trait(op.kind, Trait.SCATTERS):
        return tuple(flow.operands[op][:1])
    if not op.results or not _is_elementwise(op):  # an effect has no results
        return ()
    shape, size = op.results[0].shape, itemsize_bytes(op.results[0].dtype)
    alike = [
        v
        for v in producers.reads
        if v.shape == shape and itemsize_bytes(v.dtype) == size
    ]
    if not alike:
        return ()
    needed_elsewhere: set[Value] = set()
    for each in (op, *reversed(producers.ops)):
        is_moved = each.results[0].shape != shape or not _is_elementwise(each)
        if is_moved or not needed_elsewhere.isdisjoint(each.results):
            needed_elsewhere.update(flow.operands[each])
    return tuple([v for v in alike if v not in needed_elsewhere])


def _is_elementwise(op: Op) -> bool:
    """Whether each element of the result needs its operands at that position alone."""
    return op.kind not in _NOT_ELEMENTWISE and kind_of(op) is FusionKind.LOOP


def updated_operand(
    op: Op, kind: FusionKind, reads: Sequence[Value], flow: Flow
) -> Value | None:
    """The operand that an op may update in place; `None` if there is none.

    The updated array of a dynamic-update-slice, or for an elementwise op the first
    operand like the result, which it takes only if the caller donated it.
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
