"""The dims of a matrix product by role: contracted, batch, or free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshwright.program.ir import Op


@dataclass(frozen=True, slots=True)
class ProductDims:
    """The dims of a `dot_general`'s operands (left, right) by role.

    `side` 0 is the left.
    """

    contracted: tuple[tuple[int, ...], tuple[int, ...]]
    batch: tuple[tuple[int, ...], tuple[int, ...]]
    ranks: tuple[int, int]

    @staticmethod
    def of(op: Op) -> ProductDims:
        """The dims of a `dot_general` op, from its parameter `dimension_numbers`."""
        numbers: Any = op.params["dimension_numbers"]
        (summed, summed_too), (batch, batch_too) = numbers
        left, right, *_ = op.operands
        return ProductDims(
            (tuple(summed), tuple(summed_too)),
            (tuple(batch), tuple(batch_too)),
            (len(left.shape), len(right.shape)),
        )

    def _free(self, side: int) -> list[int]:
        known = (*self.contracted[side], *self.batch[side])
        return [d for d in range(self.ranks[side]) if d not in known]

    def partner(self, side: int, dim: int) -> int | None:
        """The other operand's dim that is contracted or batched with `dim`, if any."""
        for pair in (self.contracted, self.batch):
            if dim in pair[side]:
                return pair[1 - side][pair[side].index(dim)]
        return None

    def result_dim(self, side: int, dim: int) -> int | None:
        """The result's dim that an operand's dim becomes; `None` if contracted."""
        if dim in self.contracted[side]:
            return None
        if dim in self.batch[side]:
            return self.batch[side].index(dim)
        before = len(self.batch[0]) + (len(self._free(0)) if side else 0)
        return before + self._free(side).index(dim)

    def operand_dims(self, result_dim: int) -> dict[int, int]:
        """The dims of the operands from which a dim of the result comes, by `side`."""
        return {
            side: dim
            for side in (0, 1)
            for dim in range(self.ranks[side])
            if self.result_dim(side, dim) == result_dim
        }
