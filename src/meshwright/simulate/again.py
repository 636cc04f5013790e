"""Whether products compute an operand again, each for itself, or read it from memory.

A compiler weighs seconds: to compute it again takes a product as long as the slower of
memory and vector unit; to keep it takes a pass that writes it, and reading it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.cost.operation import TRANSCENDENTAL_FLOPS
from meshwright.cost.padding import product_extents
from meshwright.ir import Op
from meshwright.machine import Chip
from meshwright.rules import Work, work_of

_LANES = 128


@dataclass(frozen=True, slots=True)
class Balance:
    """Operations that a chip's units do while main memory moves a byte, at its peaks.

    vector: of 32 bits. matrix: of products of 16 bits.
    """

    vector: float
    matrix: float

    def waits(self, product: Op, num_bytes: int) -> bool:
        """Whether a product waits for an operand of so many bytes, read once.

        Others read it tile by tile, again and again, so that bytes count more.
        """
        return work_of(product).flops < self.matrix * num_bytes

    def is_computed_again(
        self, readers: Sequence[Op], work: Work, read_bytes: int, num_bytes: int
    ) -> bool:
        """Whether that takes products that wait for a value less time than to keep it.

        work: what makes the value, rounding it included. read_bytes: of what it is made
        of. num_bytes: its own.
        """
        flops = work.flops + TRANSCENDENTAL_FLOPS * work.transcendentals
        made, times = flops / self.vector, len(readers)
        again = times * max(read_bytes, made)
        return again < max(read_bytes + num_bytes, made) + times * num_bytes


def are_narrow_batches(products: Sequence[Op]) -> bool:
    """Whether all are batches of products with a side narrower than a row of lanes.

    Such are those that read the scores of heads of 64 or 96. What they read is computed
    again as if all its 32 bits were kept, though it is kept in 16: so it is in T24 and
    in a conformer on v4, and not in T32, whose heads have 128. Nobody says why.
    """
    return all(
        op.kind == "dot_general"
        and (extents := product_extents(op))[0] > 1
        and min(extents[1], extents[2]) < _LANES
        for op in products
    )


def balance_of(chip: Chip) -> Balance:
    """That of a chip."""
    per_s = chip.hbm_bytes_per_s
    return Balance(
        chip.vector_flops_per_s / per_s, chip.peak_flops_per_s("bfloat16") / per_s
    )
