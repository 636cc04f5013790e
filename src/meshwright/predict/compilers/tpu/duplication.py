"""Whether products compute an operand again, each for itself, or read it from memory.

A compiler weighs seconds: to compute it again takes a product as long as the slower of
memory and vector unit; to keep it takes a pass that writes it, and reading it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from meshwright.machine import Chip
from meshwright.predict.compilers.xla.fusion import HALF, rounds
from meshwright.predict.compilers.xla.producers import Fed
from meshwright.predict.roofline.kernel_time import TRANSCENDENTAL_FLOPS
from meshwright.predict.roofline.padding import product_extents
from meshwright.program.ir import Op, Value, num_bytes
from meshwright.program.ops import OpWork, work_of

_LANES = 128

_ROUNDING_FLOPS = 30
"""Of an element that a program rounds to 16 bits itself, from 32 that products would read.

So fitted that weights of attention are stored on v4 and v5p, and computed again from
their exponentials on v5e and v6e, as in seven programs: 23 to 34 give that.
"""

_FLOPS = 2
"""Of an element that is rounded to what the matrix unit takes, whoever asked for it."""


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
        self, readers: Sequence[Op], work: OpWork, read_bytes: int, num_bytes: int
    ) -> bool:
        """Whether that takes products that wait for a value less time than to keep it.

        work: what makes the value, rounding it included. read_bytes: of what it is made
        of. num_bytes: its own.
        """
        flops = work.flops + TRANSCENDENTAL_FLOPS * work.transcendentals
        made, times = flops / self.vector, len(readers)
        again = times * max(read_bytes, made)
        return again < max(read_bytes + num_bytes, made) + times * num_bytes


@dataclass(frozen=True, slots=True)
class Made:
    """A value, what an op and those that it takes in make it of, and bytes by value.

    operands: of each op, as stored.
    """

    value: Value
    op: Op
    fed: Fed
    operands: Mapping[Op, Sequence[Value]]
    size: Callable[[Value], int]

    @property
    def read_bytes(self) -> int:
        """Of what it is made of."""
        shares = self._shares()
        return sum(int(self.size(v) * shares.get(v, 1.0)) for v in self.fed.reads)

    @property
    def work(self) -> OpWork:
        """What makes it, rounding it included."""
        flops = _FLOPS + _ROUNDING_FLOPS * self._is_rounded()
        rounding = OpWork(flops * math.prod(self.value.shape))
        return self.fed.work_with(work_of(self.op) + rounding, self._shares())

    def _is_rounded(self) -> bool:
        """Whether a program rounds it itself, made of as many elements of 32 bits.

        Vectors that are rounded on the way, such as scales, do not count.
        """
        size = math.prod(self.value.shape)
        ops = (self.op, *self.fed.ops)
        large = [op for op in ops if math.prod(op.results[0].shape) >= size]
        is_wide = any(
            math.prod(v.shape) >= size and self.size(v) > HALF * math.prod(v.shape)
            for v in self.fed.reads
        )
        return is_wide and any(map(rounds, large))

    def kept_bytes(self, readers: Sequence[Op]) -> int:
        """Its own, as a compiler counts them."""
        if are_narrow_batches(readers):
            return num_bytes(self.value)
        return self.size(self.value)

    def _shares(self) -> Mapping[Value, float]:
        return self.fed.shares(self.op, self.operands)


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
