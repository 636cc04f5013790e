"""Shares of stored elements from which dense code is faster than sparse code.

Sparse code takes about four times as long as dense code for each element that it reads;
with few columns dense code is bound by memory, too, so that the two meet later. Measured
for CSR of 4096 x 4096 in float32, from 10 to 50 % of elements (docs/sparse.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.features.sparse.mlir.formats import Format

_SHARES = ((1, 0.5), (2, 0.4), (4, 0.33))
"""For products with up to so many columns, the share from which dense code is faster."""

_WIDE_SHARE = 0.25
"""This share for products with more columns."""

_LEAST_WORK = 1_000_000
"""Multiplications of a dense product that take about as long as a call besides: 15 us."""


@dataclass(frozen=True, slots=True)
class DenseLimit:
    """From how many stored elements on an input of a product is better dense.

    place: the array of elements, among all arrays that store inputs.
    """

    path: str
    place: int
    size: int
    columns: int

    @property
    def share(self) -> float:
        """The share of stored elements from which dense code is faster."""
        return next((s for most, s in _SHARES if self.columns <= most), _WIDE_SHARE)

    @property
    def stored(self) -> float:
        """The number of stored elements from which dense code is faster."""
        return self.share * self.size

    def notice(self, stored: int) -> str:
        """A sentence that says that so many stored elements are too many."""
        times = f"{self.columns} column" + ("s" if self.columns > 1 else "")
        return (
            f"{self.path} stores {stored / self.size:.0%} of its elements; in a product "
            f"with {times}, dense code is faster from about {self.share:.0%} on. Name no "
            "format for it, and give a dense array"
        )


def dense_limits(
    inputs: Sequence[tuple[str, tuple[int, ...], Format | None]],
    columns: Sequence[int],
) -> list[DenseLimit]:
    """The limits of sparse inputs of large products.

    inputs: the path, shape and format of each. columns: for each, the columns of all its
        products with dense operands together.
    """
    found: list[DenseLimit] = []
    place = 0
    for (path, shape, form), count in zip(inputs, columns, strict=True):
        place += 1 if form is None else 3
        size = math.prod(shape)
        if form is not None and size * count >= _LEAST_WORK:
            found.append(DenseLimit(path, place - 1, size, count))
    return found
