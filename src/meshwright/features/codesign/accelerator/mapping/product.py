"""A product that arrays compute, and its mapping to a design."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from meshwright.features.codesign.accelerator.mapping.folds import Extents, Split
from meshwright.features.codesign.accelerator.mapping.tiles import LoopTiling

SUM_BYTES = 4
"""Bytes of a partial sum."""


@dataclass(frozen=True, slots=True)
class ArrayProduct:
    """A batch of products, or a convolution as one, and the bytes of its operands.

    input_bytes, weight_bytes, output_bytes: of the whole batch. A convolution's inputs
        count once, though its windows overlap.
    halo, row_m: as in `Sizes`.
    is_fixed: whether the left operand has to stream, as a convolution's input does. The
        operands of other products may change their places.
    """

    extents: Extents
    input_bytes: float
    weight_bytes: float
    output_bytes: float
    halo: float = 0.0
    row_m: int = 0
    is_fixed: bool = False

    @classmethod
    def of(
        cls, extents: Extents, itemsize: float, is_fixed: bool = False
    ) -> ArrayProduct:
        """A product whose operands all have elements of `itemsize` bytes."""
        b, m, n, k = extents.batch, extents.m, extents.n, extents.k
        sizes = (b * m * k * itemsize, b * k * n * itemsize, b * m * n * itemsize)
        return cls(extents, *sizes, is_fixed=is_fixed)

    @property
    def turned(self) -> ArrayProduct:
        """The transposed product: the right operand streams."""
        e = self.extents
        return ArrayProduct(
            Extents(e.batch, e.n, e.m, e.k),
            self.weight_bytes,
            self.input_bytes,
            self.output_bytes,
        )


@dataclass(frozen=True, slots=True)
class ProductMapping:
    """The way in which a design computes a product.

    cycles: of the arrays, without stalls. stall_cycles: for which they wait for memory.
    split: division over the PEs.
    dram_bytes: that cross the chip's border, by operand.
    traffic_bytes: read and written, by memory: "dram", "global", "l1".
    energy_j: by memory, and "arrays".
    tilings: by memory that holds the tiles.
    is_turned: whether the operands have changed their places.
    """

    cycles: int
    stall_cycles: int
    split: Split
    dram_bytes: Mapping[str, float]
    traffic_bytes: Mapping[str, float]
    energies_j: Mapping[str, float]
    tilings: Mapping[str, LoopTiling]
    is_turned: bool = False

    @property
    def energy_j(self) -> float:
        """Energy of the multiplications and of all accesses to memories."""
        return math.fsum(self.energies_j.values())

    @property
    def held_bytes(self) -> float:
        """Bytes of the tiles in the memory that all PEs share."""
        return self.tilings["global"].held_bytes if "global" in self.tilings else 0.0

    @property
    def schedule(self) -> str:
        """Loops over tiles from the outermost memory inwards, a line for each memory."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for memory, tiling in self.tilings.items():
            tile = " x ".join(map(str, tiling.tile))
            loops = ", ".join(tiling.order)
            whole = f", {tiling.kept} whole" if tiling.kept else ""
            yield (
                f"{memory}: loops over {loops}; tile {tile} (m x n x k)"
                f"{whole}, {tiling.held_bytes / 1024:.1f} KiB"
            )
        s = self.split
        yield f"PEs: batch / {s.batch}, m / {s.m}, n / {s.n}"
