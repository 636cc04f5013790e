"""Products of two dense tensors, as loops over tiles that registers hold.

A tile is a few rows of the result, one vector of columns wide. The panel of the second
operand that a tile needs stays in the cache for all rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from meshwright.features.sparse.mlir.conversions import first_dim, grouped, turned
from meshwright.features.sparse.mlir.emitter import (
    Emitter,
    Tensor,
    loop_order,
    memory_type,
)
from meshwright.features.sparse.multiply.tiles import Tile, Tiles
from meshwright.program.rules.rule import Dims

_ROWS = 4
"""Rows of a tile: with 256 bytes of columns, they take 16 registers of 64 bytes."""


def dense_times_dense(
    code: Emitter, tensors: Sequence[Tensor], maps: Sequence[Dims], out_dims: Dims
) -> Tensor | None:
    """The product of dense tensors over one dim of each; `None` for other forms.

    maps, out_dims: the factors of each dim of the operands and of the result.
    """
    if any(t.format is not None for t in tensors):
        return None
    left, right = (loop_order(t, dims) for t, dims in zip(tensors, maps, strict=True))
    shared = set(left) & set(right)
    if len(shared) != 1 or shared & {f for fs in out_dims for f in fs}:
        return None
    (summed,) = shared
    rest = [[f for f in factors if f != summed] for factors in (left, right)]
    extents = dict(
        zip((*left, *right), (*tensors[0].shape, *tensors[1].shape), strict=True)
    )
    rows, width = (math.prod(extents[f] for f in each) for each in rest)
    if rows < _ROWS or width == 0 or extents[summed] == 0:
        return None
    first = tensors[0]
    if left[-1] == summed:
        for shape in ((math.prod(first.shape),), (rows, extents[summed])):
            first = grouped(code, first, shape)
    else:
        first = turned(code, first_dim(code, first, left, summed))
    found = _product(code, first, first_dim(code, tensors[1], right, summed))
    placed = [*rest[0], *rest[1]]
    for shape in ((rows * width,), tuple(extents[f] for f in placed)):
        found = grouped(code, found, shape)
    return replace(found, order=tuple(placed.index(fs[0]) for fs in out_dims))


def _product(code: Emitter, left: Tensor, right: Tensor) -> Tensor:
    """The product of two matrices: for each panel of columns, all tiles of rows."""
    rows = left.shape[0]
    tiles, memory = Tiles.of(code, rows, right), code.buffer(left)
    whole = rows // _ROWS * _ROWS

    def panel(tile: Tile) -> None:
        def several(row: str, _: Sequence[str]) -> Sequence[str]:
            _write(tiles, (memory, left), row, _ROWS, tile)
            return ()

        def one(row: str, _: Sequence[str]) -> Sequence[str]:
            _write(tiles, (memory, left), row, 1, tile)
            return ()

        code.loop(code.index(0), code.index(whole), _ROWS, (), several)
        if whole < rows:
            code.loop(code.index(whole), code.index(rows), 1, (), one)

    tiles.each(panel)
    return tiles.finished()


def _write(
    tiles: Tiles, left: tuple[str, Tensor], row: str, count: int, tile: Tile
) -> None:
    """A tile of some rows, as sums over the rows of the right matrix.

    left: the memory of the left matrix, and the matrix.
    """
    code, kinds = tiles.code, tiles.kinds(tile)
    rows = [
        code.emit(f"arith.addi {row}, {code.index(i)} : index") for i in range(count)
    ]

    def body(at: str, totals: Sequence[str]) -> Sequence[str]:
        load = tiles.added(at)
        factors = [
            load(place, kind) for (place, _), kind in zip(tile, kinds, strict=True)
        ]
        found: list[str] = []
        for i, each in enumerate(rows):
            value = code.emit(
                f"memref.load {left[0]}[{each}, {at}] : {memory_type(left[1])}"
            )
            mine = totals[i * len(tile) : (i + 1) * len(tile)]
            for factor, total, kind in zip(factors, mine, kinds, strict=True):
                found.append(tiles.multiply_add(value, factor, total, kind))
        return found

    end = code.index(left[1].shape[1])
    sums = code.loop(code.index(0), end, 1, tiles.zeros(tile) * count, body)
    for i, each in enumerate(rows):
        for j, ((place, _), kind) in enumerate(zip(tile, kinds, strict=True)):
            tiles.store(sums[i * len(tile) + j], each, place, kind)
