"""Tiles and loop orders with which a product moves the fewest bytes between two memories.

A product of M x K by K x N is computed tile by tile; tiles lie in the inner memory, and
three loops over tiles run around them. A tile of an operand is fetched whenever its index
changes: an operand is read again by a loop over its missing dim unless that loop is inside
of its own. Partial sums that leave the memory before the loop over K ends are written and
read again.

One operand may instead stay whole in the memory, and is then moved once.

For given tiles of two dims, bytes do not rise with the tile of the third. So the search
takes every pair of different tiles, the largest third one that fits, and all six orders:
its result is the least over all tiles and orders. Of a dim with more than `_MOST_TILES`
different tiles (above about 1,000) it takes so many of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numba import njit

from meshwright.search.arrays import Floats, Ints

ORDERS = ("mnk", "mkn", "nmk", "nkm", "kmn", "knm")
"""Loops from the outermost to the innermost, as `order` in a `LoopTiling` counts them."""

_MOST_TILES = 64

_DIMS = np.array([["mnk".index(dim) for dim in order] for order in ORDERS])

_LACKS = np.array([1, 0, 2])
"""For inputs (M x K), weights (K x N) and sums (M x N), the dim that they lack."""


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

_NO_OPERAND = -1
"""In place of an operand's number: none stays whole."""


def best_tiling(
    sizes: Sizes,
    room: tuple[float, ...],
    least: tuple[int, int, int],
    moderate: float = math.inf,
    may_keep: bool = True,
) -> LoopTiling | Misfit:
    """The tiling with the fewest bytes; of equals, the largest that holds a moderate size.

    room: bytes for inputs, weights and sums, or one number for all of them.
    least: smallest tile, such as what an array takes; less where a dim has less.
    moderate: bytes that tiles may hold without need; of larger ones, the smallest is taken.
    may_keep: whether an operand may stay whole.
    """
    dims = np.array(sizes.dims, np.int64)
    floors = np.minimum(np.array(least, np.int64), dims)
    limits = np.array(room if len(room) == 3 else (room[0], -1.0, -1.0), np.float64)
    weights = np.array([*sizes.bytes, sizes.bytes[3 if sizes.sums_inside else 2]])
    held = _held(floors, dims, weights, _NO_OPERAND)
    misfit = _misfit(held, limits)
    if misfit is not None:
        return misfit
    tiles = tuple(_tiles(int(n), int(f)) for n, f in zip(dims, floors, strict=True))
    how = sizes.halo, sizes.row_m, moderate, may_keep
    found = _search(dims, weights, limits, *tiles, *how)  # pyright: ignore[reportCallIssue]
    tile, order, crossing, held_bytes, kept = found
    return LoopTiling(
        (int(tile[0]), int(tile[1]), int(tile[2])),
        ORDERS[order],
        (
            float(crossing[0]),
            float(crossing[1]),
            float(crossing[2]),
            float(crossing[3]),
        ),
        float(held_bytes),
        BUFFERS[kept] if kept != _NO_OPERAND else "",
    )


def _misfit(held: Floats, limits: Floats) -> Misfit | None:
    if limits[1] < 0:
        lacks = held.sum() - limits[0]
        return Misfit("memory", math.ceil(lacks)) if lacks > 0 else None
    for name, size, limit in zip(BUFFERS, held, limits, strict=True):
        if size > limit:
            return Misfit(name, math.ceil(size - limit))
    return None


@lru_cache(maxsize=4096)
def _tiles(extent: int, least: int) -> Ints:
    """The different tiles of a dim: for each number of them, the smallest."""
    numbers = np.arange(1, math.isqrt(extent) + 2)
    counts = np.unique(np.concatenate([numbers, -(-extent // numbers)]))
    tiles = np.unique(-(-extent // counts))
    tiles = tiles[tiles >= least]
    if not tiles.size:
        return np.array([extent])
    if tiles.size <= _MOST_TILES:
        return tiles
    places = np.linspace(0, 1, _MOST_TILES) ** 2 * (tiles.size - 1)
    return tiles[np.unique(np.round(places).astype(int))]


@njit(cache=True)
def _held(tile: Ints, dims: Ints, weights: Floats, kept: int) -> Floats:
    """Bytes of the tiles of inputs, weights and sums; two of each that the loops change.

    weights: bytes of inputs, weights, results, partial sums, and of complete results in
        this memory. kept: the operand that stays whole.
    """
    held = np.empty(3)
    for i in range(3):
        lacks = (1, 0, 2)[i]
        share, is_whole = 1.0, True
        for d in range(3):
            if d != lacks and i != kept:
                share *= tile[d] / dims[d]
                is_whole = is_whole and tile[d] >= dims[d]
        size = weights[i] if i < 2 else weights[4 if tile[2] >= dims[2] else 3]
        held[i] = size * share * (1.0 if is_whole else 2.0)
    return held


@njit(cache=True)
def _fits(tile: Ints, dims: Ints, weights: Floats, limits: Floats, kept: int) -> bool:
    held = _held(tile, dims, weights, kept)
    if limits[1] < 0:
        return held.sum() <= limits[0]
    return held[0] <= limits[0] and held[1] <= limits[1] and held[2] <= limits[2]


@njit(cache=True)
def moved(  # noqa: PLR0913  numba takes no records
    tile: Ints, order: Ints, dims: Ints, weights: Floats, halo: float, row_m: int,
    kept: int,
) -> Floats:  # fmt: skip
    """Bytes of inputs and weights read, of sums read and written, for one loop nest."""
    trips = np.empty(3, np.int64)
    for d in range(3):
        trips[d] = (dims[d] + tile[d] - 1) // tile[d]
    out = np.empty(4)
    for i in range(3):
        lacks = (1, 0, 2)[i]
        times = 1
        is_inside = False  # of the missing dim's loop: a loop over one of its own dims
        for position in range(2, -1, -1):
            dim = order[position]
            if dim != lacks and trips[dim] > 1:
                is_inside = True
            if dim == lacks and is_inside and i != kept:
                times = trips[dim]
        if i < 2:
            out[i] = weights[i] * times
        else:
            out[2] = weights[3] * (times - 1)
            out[3] = weights[2] + weights[3] * (times - 1)
    if row_m > 0 and trips[0] > 1 and kept != 0:
        rows = max(1.0, tile[0] / row_m)
        out[0] *= 1.0 + halo / rows
    return out


@njit(cache=True)
def _largest(
    tile: Ints, tiles_k: Ints, dims: Ints, weights: Floats, limits: Floats, kept: int
) -> int:
    """The largest tile of K that fits beside those of M and N; 0 if none does."""
    low, high = 0, len(tiles_k)
    # Sums of a whole K are results, which are smaller than partial sums.
    tile[2] = tiles_k[high - 1]
    if _fits(tile, dims, weights, limits, kept):
        return tiles_k[high - 1]
    while low < high:
        middle = (low + high) // 2
        tile[2] = tiles_k[middle]
        if _fits(tile, dims, weights, limits, kept):
            low = middle + 1
        else:
            high = middle
    return tiles_k[low - 1] if low > 0 else 0


@njit(cache=True)
def _is_better(held: float, best_held: float, moderate: float) -> bool:
    """Whether tiles that hold so many bytes are preferred among equally good ones."""
    if held > moderate or best_held > moderate:
        return held < best_held
    return held > best_held


@njit(cache=True)
def _search(  # noqa: PLR0913  numba takes no records
    dims: Ints, weights: Floats, limits: Floats, tiles_m: Ints, tiles_n: Ints,
    tiles_k: Ints, halo: float, row_m: int, moderate: float, may_keep: bool,
) -> tuple[Ints, int, Floats, float, int]:  # fmt: skip
    best, best_held, best_order, best_kept = np.inf, np.inf, 0, _NO_OPERAND
    best_tile = np.array([tiles_m[0], tiles_n[0], tiles_k[0]])
    best_moved = np.zeros(4)
    least = weights[0] + weights[1] + weights[2]
    tile = np.empty(3, np.int64)
    for kept in range(_NO_OPERAND, 3):
        if kept != _NO_OPERAND and (best <= least * (1 + 1e-9) or not may_keep):
            break
        for m in tiles_m:
            for n in tiles_n:
                tile[0], tile[1] = m, n
                largest = _largest(tile, tiles_k, dims, weights, limits, kept)
                if largest == 0:
                    continue
                tile[2] = largest
                held = _held(tile, dims, weights, kept).sum()
                is_better = kept == _NO_OPERAND and _is_better(
                    held, best_held, moderate
                )
                if best <= least * (1 + 1e-9) and not is_better:
                    continue
                for order in range(6):
                    crossing = moved(
                        tile, _DIMS[order], dims, weights, halo, row_m, kept
                    )
                    total = crossing.sum()
                    if total < best * (1 - 1e-9) or (
                        is_better and total <= best * (1 + 1e-9)
                    ):
                        best, best_held, best_order = total, held, order
                        best_tile, best_moved, best_kept = tile.copy(), crossing, kept
                        is_better = False
    return best_tile, best_order, best_moved, best_held, best_kept
