"""Aliasing: operands whose buffers the results of a fusion may take over."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from meshwright.predict.compilers.hlo.dataflow import Flow
from meshwright.predict.compilers.hlo.fusion import FusionKind, kind_of
from meshwright.predict.compilers.hlo.producers import FusedProducers
from meshwright.program.ir import Op, Value, itemsize_bytes
from meshwright.program.ops import Trait, has_trait, ops_with

_NOT_ELEMENTWISE = frozenset(
    {*ops_with(Trait.MOVES), *ops_with(Trait.SCATTERS), "copy_p", "iota"}
    - {"stack", "tile", "unstack"}  # not seen compiled
)
"""Ops that are fused into loops, but not element by element."""


def elementwise_aliases(
    op: Op, producers: FusedProducers, flow: Flow
) -> tuple[Value, ...]:
    """Operands whose buffers the result may take if they are read no more.

    Each of their elements is needed at its own position alone. A scatter may take the
    buffer of what it starts from. producers: those fused into `op`, the root.
    """
    operands = flow.operands
    if has_trait(op.kind, Trait.SCATTERS):
        return tuple(operands[op][:1])
    chain = [(each, operands[each]) for each in (*producers.ops, op)]
    return _read_in_step(producers.reads, chain)


def _read_in_step(
    values: Collection[Value], chain: Sequence[tuple[Op, Sequence[Value]]]
) -> tuple[Value, ...]:
    """The values of which a chain of ops reads each element where it writes one.

    chain: ops with the values that they read, in order; the last one writes.
    """
    last = chain[-1][0]
    if not last.results:  # an effect
        return ()
    shape, size = last.results[0].shape, itemsize_bytes(last.results[0].dtype)
    alike = [v for v in values if v.shape == shape and itemsize_bytes(v.dtype) == size]
    if not alike or not is_elementwise(last):
        return ()
    needed_elsewhere: set[Value] = set()
    for op, operands in reversed(chain):
        is_moved = op.results[0].shape != shape or not is_elementwise(op)
        if is_moved or not needed_elsewhere.isdisjoint(op.results):
            needed_elsewhere.update(operands)
    return tuple([v for v in alike if v not in needed_elsewhere])


def is_elementwise(op: Op) -> bool:
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
