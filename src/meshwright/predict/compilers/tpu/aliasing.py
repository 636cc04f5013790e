"""Aliasing of the TPU compiler: results that take an operand's buffer."""

from __future__ import annotations

from meshwright.predict.compilers.hlo.dataflow import Flow
from meshwright.predict.compilers.hlo.fusion import FusionKind
from meshwright.predict.compilers.hlo.producers import FusedProducers
from meshwright.predict.compilers.xla.aliasing import elementwise_aliases
from meshwright.program.ir import Op, Value


def aliased_operands(
    op: Op, kind: FusionKind, producers: FusedProducers, flow: Flow
) -> tuple[Value, ...]:
    """Operands whose buffers an all-reduce or an elementwise fusion may take."""
    if op.kind == "all_reduce":
        return tuple(flow.operands[op])
    if kind is not FusionKind.LOOP:
        return ()
    return elementwise_aliases(op, producers, flow)
