"""The search for tiles, compiled: bytes, cycles and fits of loop nests, and the best one.

Arrays in place of records, as numba takes them: `dims` and `tile` along M, N and K;
`weights` the bytes of inputs, weights, results, partial sums, and of complete results in
the inner memory; `pace` and `costs` as `Pace.plain` gives them.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from meshwright.search.arrays import Floats, Ints

ORDERS = ("mnk", "mkn", "nmk", "nkm", "kmn", "knm")
"""Loops from the outermost to the innermost, as `order` in a `LoopTiling` counts them."""

NO_OPERAND = -1
"""In place of an operand's number: none stays whole."""

ORDER_DIMS = np.array([["mnk".index(dim) for dim in order] for order in ORDERS])

_CLOSE = 1 + 1e-9


@njit(cache=True)
def _ceil(a: int, b: int) -> int:
    return (a + b - 1) // b


@njit(cache=True)
def _held(i: int, tile: Ints, dims: Ints, weights: Floats, kept: int) -> float:
    """Bytes of the tiles of inputs (0), weights (1) or sums (2).

    Two of each that the loops change. kept: the operand that stays whole.
    """
    lacks = (1, 0, 2)[i]
    share, is_whole = 1.0, True
    for d in range(3):
        if d != lacks and i != kept:
            share *= tile[d] / dims[d]
            is_whole = is_whole and tile[d] >= dims[d]
    size = weights[i] if i < 2 else weights[4 if tile[2] >= dims[2] else 3]
    return size * share * (1.0 if is_whole else 2.0)


@njit(cache=True)
def held_bytes(tile: Ints, dims: Ints, weights: Floats, kept: int) -> Floats:
    """Bytes of the tiles of inputs, weights and sums; two of each that the loops change.

    kept: the operand that stays whole.
    """
    return np.array([_held(i, tile, dims, weights, kept) for i in range(3)])


@njit(cache=True)
def _held_in_all(tile: Ints, dims: Ints, weights: Floats, kept: int) -> float:
    total = 0.0
    for i in range(3):
        total += _held(i, tile, dims, weights, kept)
    return total


@njit(cache=True)
def _fits(tile: Ints, dims: Ints, weights: Floats, limits: Floats, kept: int) -> bool:
    total = 0.0
    for i in range(3):
        held = _held(i, tile, dims, weights, kept)
        if limits[1] >= 0 and held > limits[i]:
            return False
        total += held
    return limits[1] >= 0 or total <= limits[0]


@njit(cache=True)
def _times(i: int, tile: Ints, order: Ints, dims: Ints, kept: int) -> int:
    """How often an operand is moved: by a loop over the dim that it lacks.

    Not if that loop is inside of its own.
    """
    lacks = (1, 0, 2)[i]
    if i == kept:
        return 1
    for position in range(2, -1, -1):
        dim = order[position]
        if dim == lacks:
            return 1
        if tile[dim] < dims[dim]:
            return _ceil(dims[lacks], tile[lacks])
    return 1


@njit(cache=True)
def _moved(  # noqa: PLR0913  numba takes no records
    i: int, tile: Ints, order: Ints, dims: Ints, weights: Floats, halo: float,
    row_m: int, kept: int,
) -> float:  # fmt: skip
    """Bytes of inputs (0) and weights (1) read, of sums read (2) and written (3)."""
    if i >= 2:
        again = weights[3] * (_times(2, tile, order, dims, kept) - 1)
        return again if i == 2 else weights[2] + again
    size = weights[i] * _times(i, tile, order, dims, kept)
    if i == 0 and row_m > 0 and tile[0] < dims[0] and kept != 0:
        size *= 1.0 + halo / max(1.0, tile[0] / row_m)
    return size


@njit(cache=True)
def moved(  # noqa: PLR0913  numba takes no records
    tile: Ints, order: Ints, dims: Ints, weights: Floats, halo: float, row_m: int,
    kept: int,
) -> Floats:  # fmt: skip
    """Bytes of inputs and weights read, of sums read and written, for one loop nest."""
    out = np.empty(4)
    for i in range(4):
        out[i] = _moved(i, tile, order, dims, weights, halo, row_m, kept)
    return out


@njit(cache=True)
def _stays(tile: Ints, order: Ints, dims: Ints, pace: Ints) -> bool:
    """Whether what is in the array stays from tile to tile: its loops are not inside."""
    for d in range(3):
        if d != pace[0] and _ceil(tile[d], pace[4 + d]) > pace[1 + d]:
            return False
    for position in range(2, -1, -1):
        dim = order[position]
        if tile[dim] < dims[dim]:
            return dim == pace[0]
    return True


@njit(cache=True)
def _cycles(tile: Ints, dims: Ints, pace: Ints, stays: bool) -> float:
    """Cycles of the folds of one loop nest, without the fill of the first.

    A fold that preloads the next takes as long as that, if it streams less.
    """
    folds = 1
    for d in range(3):
        if d != pace[0]:
            full, rest = dims[d] // tile[d], dims[d] % tile[d]
            each = _ceil(_ceil(tile[d], pace[4 + d]), pace[1 + d])
            last = _ceil(_ceil(rest, pace[4 + d]), pace[1 + d])
            folds *= full * each + last
    d, rows, between = int(pace[0]), pace[7], pace[8]
    full, rest = dims[d] // tile[d], dims[d] % tile[d]
    each, last = _ceil(tile[d], pace[4 + d]), _ceil(rest, pace[4 + d])
    pieces, streamed = full + (1 if rest > 0 else 0), full * each + last
    if stays:
        pieces = 1
        time = max(streamed, rows) if between == 0 else between + streamed
    elif between == 0:
        time = full * max(each, rows) + (max(last, rows) if rest > 0 else 0)
    else:
        time = pieces * between + streamed
    return float(folds * (time + (pieces - 1) * pace[9]))


@njit(cache=True)
def _largest(  # noqa: PLR0913  numba takes no records
    place: int, tile: Ints, tiles_k: Ints, dims: Ints, weights: Floats,
    limits: Floats, kept: int,
) -> tuple[int, int]:  # fmt: skip
    """The largest tile of K that fits beside those of M and N, 0 if none does; its place.

    place: of one that fits beside a larger tile of N, to go on from; -1 for none. What
        fits beside a whole N may not beside a part, of which there are two.
    """
    # Sums of a whole K are results, which are smaller than partial sums.
    tile[2] = tiles_k[-1]
    if _fits(tile, dims, weights, limits, kept):
        return tiles_k[-1], -1 if tile[1] == dims[1] else place
    while place + 1 < len(tiles_k):
        tile[2] = tiles_k[place + 1]
        if not _fits(tile, dims, weights, limits, kept):
            break
        place += 1
    found = tiles_k[place] if place >= 0 else 0
    return found, -1 if tile[1] == dims[1] else place


@njit(cache=True)
def _thirds(largest: int, whole: int, pace: Ints) -> tuple[int, int, int]:
    """Tiles of K worth a try: the largest, that of whole folds, that of one; 0 for none."""
    unit = pace[3] * pace[6]
    if pace[0] == 2 or pace[0] < 0 or unit == 1:
        return largest, 0, 0
    folds = largest // unit * unit
    if largest >= whole or folds == largest:
        folds = 0
    one = unit if unit < largest and unit != folds else 0
    return largest, folds, one


@njit(cache=True)
def _is_better(held: float, best_held: float, moderate: float) -> bool:
    """Whether tiles that hold so many bytes are preferred among equally good ones."""
    if held > moderate or best_held > moderate:
        return held < best_held
    return held > best_held


@njit(cache=True)
def _best_order(  # noqa: PLR0913  numba takes no records
    tile: Ints, dims: Ints, weights: Floats, halo: float, row_m: int, kept: int,
    pace: Ints, costs: Floats,
) -> tuple[float, float, int]:  # fmt: skip
    """The least cycles of the loops around a tile, the bytes, and the order's number."""
    held = apart = 0.0
    if pace[0] >= 0:
        held = _cycles(tile, dims, pace, True)
        apart = _cycles(tile, dims, pace, False)
    best_time, best, best_order = np.inf, np.inf, 0
    for number in range(6):
        order = ORDER_DIMS[number]
        time, total = 0.0, 0.0
        for i in range(4):
            size = _moved(i, tile, order, dims, weights, halo, row_m, kept)
            time += size * costs[min(i, 2)]
            total += size
        stays = pace[0] >= 0 and _stays(tile, order, dims, pace)
        time = max(time, held if stays else apart)
        if _is_less(time, total, best_time, best):
            best_time, best, best_order = time, total, number
    return best_time, best, best_order


@njit(cache=True)
def _is_less(time: float, size: float, best_time: float, best: float) -> bool:
    if time < best_time / _CLOSE:
        return True
    return time <= best_time * _CLOSE and size < best / _CLOSE


@njit(cache=True)
def _least_cycles(tile: Ints, dims: Ints, pace: Ints) -> float:
    """Cycles of the folds of a tile in the best order; 0 at no pace."""
    if pace[0] < 0:
        return 0.0
    stays = True
    for d in range(3):
        if d != pace[0]:
            stays = stays and _ceil(tile[d], pace[4 + d]) <= pace[1 + d]
    return _cycles(tile, dims, pace, stays)


@njit(cache=True)
def search_tiles(  # noqa: PLR0913  numba takes no records
    dims: Ints, weights: Floats, limits: Floats, tiles_m: Ints, tiles_n: Ints,
    tiles_k: Ints, halo: float, row_m: int, moderate: float, may_keep: bool,
    pace: Ints, costs: Floats,
) -> tuple[Ints, int, int]:  # fmt: skip
    """The tile, order and kept operand of the least time, and of the fewest bytes then."""
    best_time = best = best_held = best_cycles = np.inf
    best_order, best_kept = 0, NO_OPERAND
    best_tile = np.array([tiles_m[0], tiles_n[0], tiles_k[0]])
    least = weights[0] + weights[1] + weights[2]
    shortest = (weights[:3] * costs).sum()
    if pace[0] >= 0:
        shortest = max(shortest, _cycles(dims, dims, pace, True))
    tile = np.empty(3, np.int64)
    # Beside tiles of M and N, one fold of K takes the fewest cycles.
    one_fold = dims[2] if pace[0] == 2 else min(dims[2], pace[3] * pace[6])
    for kept in range(NO_OPERAND, 3 if may_keep else 0):
        for m in tiles_m[::-1]:
            place = -1
            for n in tiles_n[::-1]:
                tile[0], tile[1], tile[2] = m, n, one_fold
                if _least_cycles(tile, dims, pace) > best_time * _CLOSE:
                    continue
                largest, place = _largest(
                    place, tile, tiles_k, dims, weights, limits, kept
                )
                for third in _thirds(largest, dims[2], pace):
                    tile[2] = third
                    cycles = _least_cycles(tile, dims, pace) if third else np.inf
                    if third == 0 or cycles > best_time * _CLOSE:
                        continue
                    # Of equals one without a kept operand, by cycles and held bytes.
                    held = _held_in_all(tile, dims, weights, kept)
                    is_better = _is_better(held, best_held, moderate)
                    is_better = cycles == best_cycles and is_better
                    is_liked = kept < 0 and (cycles < best_cycles or is_better)
                    if not (is_liked or _is_less(shortest, least, best_time, best)):
                        continue
                    time, size, order = _best_order(
                        tile, dims, weights, halo, row_m, kept, pace, costs
                    )
                    is_less = _is_less(time, size, best_time, best)
                    is_more = _is_less(best_time, best, time, size)
                    if is_less or (is_liked and not is_more):
                        best_time, best, best_held = time, size, held
                        best_order, best_tile, best_kept = order, tile.copy(), kept
                        best_cycles = cycles
    return best_tile, best_order, best_kept
