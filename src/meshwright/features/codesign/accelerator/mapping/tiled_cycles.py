"""Cycles of a product on one array whose memories hold it tile by tile, without stalls.

A fold streams a tile's rows past what stays; what stays is taken in again for the next
tile. Only if a tile is one fold, and the streamed dim's loop the innermost, does it stay
from tile to tile. An array that preloads takes as long as it loads what stays next, where
a tile streams less than that.

Tiles of the chip are alike but for the last along each dim. So the cycles of a few
different ones are counted, and multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from meshwright.features.codesign.accelerator.mapping.folds import (
    STREAMED,
    Extents,
    Split,
    least_tile,
    loading_cycles,
)
from meshwright.features.codesign.accelerator.mapping.tiles import LoopTiling
from meshwright.machine import Accelerator

type _Pieces = list[tuple[int, int]]
"""How often there is a piece, and its length; the last one's come last."""


@dataclass(frozen=True, slots=True)
class ArrayRun:
    """What an array does for its part of a product.

    cycles: without stalls. loads: how often it takes in what stays, per element.
    """

    cycles: int
    loads: float


def array_run(
    extents: Extents, split: Split, chip: Accelerator, tilings: tuple[LoopTiling, ...]
) -> ArrayRun:
    """The cycles of the array with the largest part, and how often it takes in what stays.

    tilings: tiles of the whole chip, if it has a global memory, and of one PE.
    """
    rows = chip.array[0]
    fill = loading_cycles(chip) + sum(chip.array) - 2
    returning = rows if chip.dataflow == "output" else 0
    cycles = num_folds = num_pieces = last = 0
    for folds, pieces in _passes(extents, split, chip, tilings):
        number, last = sum(n for n, _ in pieces), pieces[-1][1]
        num_folds, num_pieces = num_folds + folds, num_pieces + folds * number
        if chip.preloads:
            cycles += folds * sum(n * max(size, rows) for n, size in pieces)
        else:
            each = sum(n * (fill + size) for n, size in pieces)
            cycles += folds * (each + returning * (number - 1))
    batch = -(-extents.batch // split.batch)
    cycles, loads = batch * cycles, num_pieces / num_folds
    if chip.preloads:  # the last fold loads nothing more
        cycles += fill + last - max(last, rows)
    return ArrayRun(cycles, loads)


type _Cut = list[tuple[int, _Pieces]]
"""How often a tile of the chip comes along a dim, and the tiles of one PE in it."""


def _passes(
    extents: Extents, split: Split, chip: Accelerator, tilings: tuple[LoopTiling, ...]
) -> Iterator[tuple[int, _Pieces]]:
    """Numbers of folds, and the pieces in which the streamed dim passes each of them."""
    units, streamed = least_tile(chip), STREAMED[chip.dataflow]
    cuts, others = (
        _cuts(extents, split, tilings),
        [d for d in range(3) if d != streamed],
    )
    one_fold = all(tilings[-1].tile[d] <= units[d] for d in others)
    outer = tuple(sum(n for n, _ in cut) for cut in cuts)
    is_last = len(tilings) == 1 or _is_innermost(streamed, outer, tilings[0])
    for one, other in product(*(cuts[d] for d in others)):
        groups = dict(zip(others, (one, other), strict=True))
        folds, trips = 1, [1, 1, 1]
        for d, (times, group) in groups.items():
            folds *= times * sum(n * -(-size // units[d]) for n, size in group)
            trips[d] = sum(n for n, _ in group)
        pieces = [(n * m, size) for n, group in cuts[streamed] for m, size in group]
        if one_fold and _is_innermost(streamed, tuple(trips), tilings[-1]):
            pieces = [(n, sum(m * s for m, s in group)) for n, group in cuts[streamed]]
            if is_last and trips == [1, 1, 1]:
                pieces = [(1, sum(n * size for n, size in pieces))]
        yield folds, pieces


def _cuts(
    extents: Extents, split: Split, tilings: tuple[LoopTiling, ...]
) -> tuple[_Cut, ...]:
    dims = (extents.m, extents.n, extents.k)
    inner = tilings[-1].tile
    outer = tilings[0].tile if len(tilings) > 1 else dims
    parts = (split.m, split.n, 1)
    return tuple(
        [(n, _cut(-(-size // part), size_inside)) for n, size in _cut(extent, tile)]
        for extent, tile, part, size_inside in zip(
            dims, outer, parts, inner, strict=True
        )
    )


def _cut(extent: int, tile: int) -> _Pieces:
    full, rest = divmod(extent, tile)
    return [(n, size) for n, size in ((full, tile), (1, rest)) if n and size]


def _is_innermost(streamed: int, trips: tuple[int, ...], tiling: LoopTiling) -> bool:
    """Whether no loop of several trips is inside of the streamed dim's."""
    for dim in reversed(tiling.order):
        number = "mnk".index(dim)
        if number == streamed:
            return True
        if trips[number] > 1:
            return False
    return True
