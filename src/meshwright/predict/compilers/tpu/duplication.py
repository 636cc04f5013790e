"""Duplication: whether matrix products recompute an operand or read it from memory.

An operand that several products need can be computed once and stored, or again by each
product. The TPU compiler compares the seconds: if it is recomputed, each product takes
the longer of its times in memory and in the vector unit; if it is stored, one kernel
writes it and each product reads it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.machine import Chip
from meshwright.predict.compilers.model.fusion import (
    FusionKind,
    share_read,
    widening_bytes,
)
from meshwright.predict.compilers.model.policies import FusedOp
from meshwright.predict.roofline.matrix_unit import product_extents
from meshwright.program.ir import Op, Value, itemsize_bytes, num_bytes
from meshwright.program.ops import OpWork, work_of

_LANES, _HALF = 128, 2
"""Elements in a row of a register, and bytes of a 16-bit element."""

_TRANSCENDENTAL_FLOPS = 16
"""Operations of one exponential, logarithm or the like, by which the compiler's choices are
reproduced on all TPUs. What one costs in time is `Chip.transcendental_flops`."""

_ROUNDING_FLOPS = 30
"""Operations per element that the program itself rounds from 32 to 16 bits.

Fitted to seven programs (libtpu 0.0.50): attention weights are stored on v4 and v5p,
and recomputed from their exponentials on v5e and v6e. Values from 23 to 34 give that."""

_FLOPS = 2
"""Operations per element that is in any case rounded to the dtype of the matrix unit."""


@dataclass(frozen=True, slots=True)
class Balance:
    """Operations that a chip can do in the time that main memory moves one byte.

    vector: 32-bit operations of the vector unit. matrix: 16-bit operations of the
        matrix unit.
    """

    vector: float
    matrix: float

    def __call__(self, producer: FusedOp, value: Value) -> bool | None:
        """Whether the products that read a value recompute it.

        `None` if this comparison does not apply: a reader is no product, or not bound
        by memory.
        """
        op, producers, flow, layouts = producer
        consumers = flow.consumers.get(value, ())
        if not all(flow.kinds[each] is FusionKind.PRODUCT for each in consumers):
            return None
        slices = producers.slices(op, flow.operands)
        shares = {v: share_read(each) for v, each in slices.items()}
        size = layouts.num_bytes
        read_bytes = sum(int(size(v) * shares.get(v, 1.0)) for v in producers.reads)
        if not all(self.waits(consumer, read_bytes) for consumer in consumers):
            return None
        flops = _FLOPS + _ROUNDING_FLOPS * _is_rounded(producer, value)
        rounding = OpWork(flops * math.prod(value.shape))
        work = producers.work_with(work_of(op) + rounding, shares)
        is_narrow = are_batches_below_lanes(consumers)
        stored_bytes = num_bytes(value) if is_narrow else size(value)
        return self.is_recomputed(consumers, work, read_bytes, stored_bytes)

    def waits(self, product: Op, num_bytes: int) -> bool:
        """Whether a product is bound by memory if it reads `num_bytes` bytes once.

        Other products read an operand tile by tile, many times.
        """
        return work_of(product).flops < self.matrix * num_bytes

    def is_recomputed(
        self, consumers: Sequence[Op], work: OpWork, read_bytes: int, num_bytes: int
    ) -> bool:
        """Whether products bound by memory take less time if they recompute the operand.

        work: operations to compute the operand, with rounding. read_bytes: bytes of the
        values from which it is computed. num_bytes: bytes of the operand.
        """
        flops = work.flops + _TRANSCENDENTAL_FLOPS * work.transcendentals
        made, times = flops / self.vector, len(consumers)
        recomputed = times * max(read_bytes, made)
        return recomputed < max(read_bytes + num_bytes, made) + times * num_bytes


def _is_rounded(producer: FusedOp, value: Value) -> bool:
    """Whether a value is rounded to 16 bits from 32-bit values of at least its size.

    Small 32-bit values that are rounded on the way, such as scales, do not count.
    """
    size, producers = math.prod(value.shape), producer.producers
    ops = (producer.op, *producers.ops)
    large = [op for op in ops if math.prod(op.results[0].shape) >= size]
    is_wide = any(
        math.prod(v.shape) >= size
        and producer.layouts.num_bytes(v) > _HALF * math.prod(v.shape)
        for v in producers.reads
    )
    return is_wide and any(
        widening_bytes(op) < 0 and itemsize_bytes(op.results[0].dtype) == _HALF
        for op in large
    )


def are_batches_below_lanes(products: Sequence[Op]) -> bool:
    """Whether all products are batched and have a side below 128, the lanes of a register.

    Attention with heads of 64 or 96 features has such products. The compiler treats
    their operands as if they were stored in 32 bits, though they take 16 (seen in 2
    programs on v4; not with heads of 128). The reason is unknown.
    """
    return all(
        op.kind == "dot_general"
        and (extents := product_extents(op))[0] > 1
        and min(extents[1], extents[2]) < _LANES
        for op in products
    )


def balance_of(chip: Chip) -> Balance:
    """The operations of a chip's units per byte of its main memory, at their peaks."""
    matrix, per_s = chip.peak_flops_per_s("bfloat16"), chip.hbm_bytes_per_s
    return Balance(chip.vector_flops_per_s / per_s, matrix / per_s)
