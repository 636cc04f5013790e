"""Tiles and loop orders with which a product moves the fewest bytes between two memories.

A product of M x K by K x N is computed tile by tile; tiles lie in the inner memory, and
three loops over tiles run around them. A tile of an operand is fetched whenever its index
changes: an operand is read again by a loop over its missing dim unless that loop is inside
of its own. Partial sums that leave the memory before the loop over K ends are written and
read again.

One operand may instead stay whole in the memory, and is then moved once.

The least time comes first, then the fewest bytes. Time is the longer of the cycles of the
array's folds, which rise as tiles stream less or end within a fold, and of the transfer of
the bytes (`Pace`).

For given tiles of two dims, bytes do not rise with the tile of the third. So the search
takes every pair of different tiles, the largest third one that fits, and all six orders:
for bytes alone its result is the least over all tiles and orders. Tiles of a dim are
different if there are more of them, or more whole folds in each. Of a dim with more than
`_MOST_TILES` (above about 1,000) it takes so many of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from meshwright.features.codesign.accelerator.mapping.tile_search import (
    NO_OPERAND,
    ORDER_DIMS,
    ORDERS,
    held_bytes,
    moved,
    search_tiles,
)
from meshwright.search.arrays import Floats, Ints

_MOST_TILES = 64


@dataclass(frozen=True, slots=True)
class Sizes:
    """A product as two memories see it.

    dims: M, N and K.
    bytes: of inputs, weights, results, and of partial sums, in whole.
    halo: input rows that neighbouring tiles of a convolution both read, as a share of the
        rows that one result row moves on; rows_m: elements of M in one such row; 0 for
        none.
    sums_inside: whether results lie in the inner memory as partial sums until they leave
        it, since an array adds to them there.
    """

    dims: tuple[int, int, int]
    bytes: tuple[float, float, float, float]
    halo: float = 0.0
    row_m: int = 0
    sums_inside: bool = False


@dataclass(frozen=True, slots=True)
class Pace:
    """The speeds that set the time of a loop nest around an array.

    streamed: number of the dim that streams past what stays in the array.
    units: extents along M, N and K of one fold; 1 for the streamed dim.
    rows: cycles to load what stays next.
    between: cycles of a fold beside those of its streamed rows; 0 if the array preloads,
        since a fold then takes as long as the longer of both.
    returning: cycles in which sums that left the array return to it, before each piece of
        a streamed dim but the first.
    parts: arrays among which a tile's M, N and K are divided.
    cycles_per_byte: of inputs, weights and sums that cross the border of the memory.
    """

    streamed: int
    units: tuple[int, int, int]
    rows: int
    between: int
    returning: int = 0
    parts: tuple[int, int, int] = (1, 1, 1)
    cycles_per_byte: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def plain(self) -> tuple[Ints, Floats]:
        """The numbers as arrays."""
        counts = (self.streamed, *self.units, *self.parts)
        counts = (*counts, self.rows, self.between, self.returning)
        return np.array(counts, np.int64), np.array(self.cycles_per_byte, np.float64)


TIMELESS = Pace(-1, (1, 1, 1), 0, 0)
"""A pace at which only bytes count."""


@dataclass(frozen=True, slots=True)
class LoopTiling:
    """Tiles of a product in the inner memory, and the bytes that cross its border.

    tile: extents along M, N and K.
    order: loops over tiles, the outermost first; one of `ORDERS`.
    kept: the operand that stays whole, one of `BUFFERS`; "" if all are in tiles.
    bytes: of inputs and weights read, of sums read, and of sums written.
    held_bytes: of the tiles in the inner memory, two of each where the loop goes on.
    """

    tile: tuple[int, int, int]
    order: str
    bytes: tuple[float, float, float, float]
    held_bytes: float
    kept: str = ""

    @property
    def moved_bytes(self) -> float:
        """All bytes that cross the border of the memory."""
        return math.fsum(self.bytes)


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why no tile fits: the buffer that is too small, and by how many bytes."""

    buffer: str
    lacks_bytes: int


BUFFERS = ("inputs", "weights", "outputs")


def best_tiling(
    sizes: Sizes,
    room: tuple[float, ...],
    least: tuple[int, int, int],
    pace: Pace = TIMELESS,
    moderate: float = math.inf,
    may_keep: bool = True,
) -> LoopTiling | Misfit:
    """The fastest tiling, and of equally fast ones that with the fewest bytes.

    Of equals one of the fewest cycles, and of these the largest that holds a moderate
    size.

    room: bytes for inputs, weights and sums, or one number for all of them.
    least: smallest tile, such as what an array takes; less where a dim has less.
    moderate: bytes that tiles may hold without need; of larger ones, the smallest is taken.
    may_keep: whether an operand may stay whole.
    """
    dims = np.array(sizes.dims, np.int64)
    floors = np.minimum(np.array(least, np.int64), dims)
    limits = np.array(room if len(room) == 3 else (room[0], -1.0, -1.0), np.float64)
    weights = np.array([*sizes.bytes, sizes.bytes[3 if sizes.sums_inside else 2]])
    smallest = held_bytes(floors, dims, weights, NO_OPERAND)
    misfit = _misfit(smallest, limits)
    if misfit is not None:
        return misfit
    units = [u * p for u, p in zip(pace.units, pace.parts, strict=True)]
    tiles = tuple(
        _tiles(int(n), int(f), unit)
        for n, f, unit in zip(dims, floors, units, strict=True)
    )
    windows = sizes.halo, sizes.row_m
    m, n, k = tiles
    array, costs = pace.plain
    tile, order, kept = search_tiles(
        dims, weights, limits, m, n, k, *windows, moderate, may_keep, array, costs
    )
    crossing = moved(tile, ORDER_DIMS[order], dims, weights, *windows, kept)
    inputs, read, sums, written = (float(size) for size in crossing)
    return LoopTiling(
        (int(tile[0]), int(tile[1]), int(tile[2])),
        ORDERS[order],
        (inputs, read, sums, written),
        float(held_bytes(tile, dims, weights, kept).sum()),
        BUFFERS[kept] if kept != NO_OPERAND else "",
    )


def _misfit(held: Floats, limits: Floats) -> Misfit | None:
    if limits[1] < 0:
        lacks = held.sum() - limits[0]
        return Misfit("memory", math.ceil(lacks)) if lacks > 0 else None
    for name, size, limit in zip(BUFFERS, held, limits, strict=True):
        if size > limit:
            return Misfit(f"buffer for {name}", math.ceil(size - limit))
    return None


@lru_cache(maxsize=4096)
def _tiles(extent: int, least: int, unit: int) -> Ints:
    """The different tiles of a dim: for each number of them, the smallest.

    unit: extent of a fold; for each number of folds in a tile, that tile too.
    """
    tiles = _smallest(extent)
    if unit > 1:
        tiles = np.union1d(
            tiles, np.minimum(_smallest(-(-extent // unit)) * unit, extent)
        )
    tiles = tiles[tiles >= least]
    if not tiles.size:
        return np.array([extent])
    if tiles.size <= _MOST_TILES:
        return tiles
    places = np.linspace(0, 1, _MOST_TILES) ** 2 * (tiles.size - 1)
    return tiles[np.unique(np.round(places).astype(int))]


def _smallest(extent: int) -> Ints:
    """For each number of tiles into which an extent can be cut, the smallest."""
    numbers = np.arange(1, math.isqrt(extent) + 2)
    counts = np.unique(np.concatenate([numbers, -(-extent // numbers)]))
    return np.unique(-(-extent // counts))
