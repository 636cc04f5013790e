"""Priority fusion: which results XLA's GPU compiler recomputes instead of storing them.

XLA: `PriorityFusion`, after `GemmFusion`. Either all consumers of an elementwise op
recompute it in their own kernels, or the op's result is stored. The kernel of a matrix
product does not recompute elementwise ops that another consumer also needs. A
convolution, which a library computes, recomputes nothing.
"""

import math
from collections.abc import Sequence

from meshwright.predict.compilers.model.dataflow import Flow
from meshwright.predict.compilers.model.fusion import FusionKind
from meshwright.predict.compilers.model.policies import (
    FUSED,
    STORED,
    UNUSED,
    Decision,
    FusedOp,
)
from meshwright.predict.compilers.xla.producer_fusion import (
    is_large_broadcast,
    recomputed_carries,
)
from meshwright.program.ir import Op, Value, itemsize_bytes, num_bytes
from meshwright.program.ops import Trait, has_trait

_EXPENSIVE = frozenset(
    {"acos", "asin", "atan2", "cos", "digamma", "erf", "erf_inv", "erfc", "lgamma",
     "logistic", "pow", "sin", "tan", "tanh"}
)  # fmt: skip
"""Kinds of ops that cost a GPU more than ten cycles per element.

To recompute them takes longer than to read their results.
"""

_EMITTED = frozenset({FusionKind.LOOP, FusionKind.REDUCTION})
"""Kinds of fusions whose code XLA emits element by element, so that they can recompute
operands.
"""


def decide(producer: FusedOp) -> Sequence[Decision]:
    """For each result of an op, whether it is stored, recomputed by consumers, or both.

    producer: the op, together with the producers that are already fused into it.
    """
    op, _, flow, _ = producer
    carried = recomputed_carries(op) if op.bodies else ()
    found: list[Decision] = []
    for value in op.results:
        consumers = flow.consumers.get(value, ())
        if value in flow.stored or value in carried:
            found.append(STORED)
        elif consumers and _is_elemental(op, flow) and _is_fused(producer, value):
            found.append(FUSED)
        else:
            found.append(STORED if consumers or op.has_effect else UNUSED)
    return found


def _is_elemental(op: Op, flow: Flow) -> bool:
    """Whether a fusion can compute single elements of an op's result.

    True of elementwise ops and moves of elements, but not of scatters.
    """
    return flow.kinds[op] is FusionKind.LOOP and not has_trait(op.kind, Trait.SCATTERS)


def _is_fused(producer: FusedOp, value: Value) -> bool:
    """Whether all consumers of a value recompute it, so that it is not stored."""
    flow = producer.flow
    consumers = list(dict.fromkeys(flow.consumers[value]))
    if not all(_can_fuse(consumer, producer, value) for consumer in consumers):
        return False
    return len(consumers) == 1 or _saves_time(producer, value, consumers)


def _can_fuse(consumer: Op, producer: FusedOp, value: Value) -> bool:
    """Whether the kernel of a consumer can recompute a value that it reads."""
    kind = producer.flow.kinds[consumer]
    if kind is FusionKind.REGION:
        return is_large_broadcast(value, producer.flow)
    if kind is FusionKind.PRODUCT:
        return consumer.kind == "dot_general" and _is_operand(producer, value)
    if has_trait(consumer.kind, Trait.SCATTERS):
        return value is not producer.flow.operand(consumer, 0)
    return kind in _EMITTED or has_trait(consumer.kind, Trait.READS_AT_INDEX)


def _is_operand(producer: FusedOp, value: Value) -> bool:
    """Whether a product's kernel recomputes its operand (XLA: `IsInputWorthFusing`).

    It does if no other op needs the value and the product then reads no more bytes.
    """
    reads = producer.producers.reads
    is_single = len(producer.flow.consumers[value]) == 1
    return is_single and sum(map(num_bytes, reads)) <= num_bytes(value)


def _saves_time(producer: FusedOp, value: Value, consumers: Sequence[Op]) -> bool:
    """Whether several consumers move fewer bytes if each of them recomputes a value.

    The alternative is that one kernel reads the value's operands, writes the value, and
    each consumer reads it.
    """
    op, flow, reads = producer.op, producer.flow, producer.producers.reads
    if any(each.kind in _EXPENSIVE for each in (op, *producer.producers.ops)):
        return False
    size, elements = num_bytes(value), math.prod(value.shape)
    # Of a larger array, a slice is read.
    read = {
        v: min(elements, math.prod(v.shape)) * itemsize_bytes(v.dtype) for v in reads
    }
    again = sum(
        num_bytes
        for consumer in consumers
        for v, num_bytes in read.items()
        if v not in flow.operands[consumer]
    )
    return again <= sum(read.values()) + size * (1 + len(consumers))
