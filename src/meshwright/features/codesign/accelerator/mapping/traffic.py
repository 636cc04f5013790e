"""Bytes that memories exchange for one mapping of a product, and arrays with the first."""

from __future__ import annotations

import math

from meshwright.features.codesign.accelerator.mapping.folds import Split
from meshwright.features.codesign.accelerator.mapping.product import (
    SUM_BYTES,
    ArrayProduct,
)
from meshwright.features.codesign.accelerator.mapping.tiles import (
    BUFFERS,
    LoopTiling,
    Sizes,
)
from meshwright.machine import Accelerator


def part_of(tile: tuple[int, int, int], split: Split) -> tuple[int, int, int]:
    """The largest part of a tile that one PE computes."""
    return -(-tile[0] // split.m), -(-tile[1] // split.n), tile[2]


def shares_of(tile: tuple[int, int, int], split: Split) -> tuple[float, ...]:
    """Inputs, weights, sums read and written of all PEs, relative to the largest part's.

    PEs that divide n read the same inputs, and PEs that divide m the same weights; one read
    serves them all. The last PEs' parts may be smaller.
    """
    m, n = (t / p for t, p in zip(tile[:2], part_of(tile, split)[:2], strict=True))
    return m, n, m * n, m * n


def inside_bytes(
    sizes: Sizes, outer: LoopTiling | None, inner: LoopTiling, split: Split, batch: int
) -> list[float]:
    """Bytes that all PEs take from the memory above theirs, and give to it.

    What a PE holds whole of a tile stays while the tile does.
    """
    tile = sizes.dims if outer is None else outer.tile
    parts = shares_of(tile, split)
    if outer is None:
        return [b * p * batch for b, p in zip(inner.bytes, parts, strict=True)]
    tiles = math.prod(n / t for n, t in zip(sizes.dims, outer.tile, strict=True))
    whole = part_of(tile, split)
    is_whole = [t >= p for t, p in zip(inner.tile, whole, strict=True)]
    held = (is_whole[0] and is_whole[2], is_whole[2] and is_whole[1])
    held = (*held, is_whole[0] and is_whole[1])
    kept = [w or inner.kept == name for w, name in zip(held, BUFFERS, strict=True)]
    kept.append(kept[2])
    return [
        batch * (o if is_kept else i * p * tiles)
        for o, i, p, is_kept in zip(outer.bytes, inner.bytes, parts, kept, strict=True)
    ]


def array_bytes(
    product: ArrayProduct, chip: Accelerator, split: Split, loads: float
) -> float:
    """Bytes that arrays exchange with the first memories; the first fold reads no sums.

    loads: how often an array takes in what stays.
    """
    e = product.extents
    part, pes = e.divided(split), split.batch * split.m * split.n
    rows, columns = chip.array
    m, n, k = part.m, part.n, part.k
    itemsize = product.input_bytes / max(1, e.batch * e.m * e.k)
    width = product.weight_bytes / max(1, e.batch * e.n * e.k)
    itemsize = max(itemsize, width)  # a convolution's windows overlap in its input
    if chip.dataflow == "output":
        read = m * k * -(-n // columns) + k * n * -(-m // rows)
        sums = m * n * (2 * loads - 1)
    elif chip.dataflow == "input":
        read = m * k * loads + k * n * -(-m // columns)
        sums = m * n * (2 * -(-k // rows) - 1)
    else:
        read = k * n * loads + m * k * -(-n // columns)
        sums = m * n * (2 * -(-k // rows) - 1)
    return pes * part.batch * (read * itemsize + sums * SUM_BYTES)
