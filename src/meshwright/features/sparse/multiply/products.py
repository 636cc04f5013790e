"""Products of a sparse matrix and a dense tensor, as loops over vectors.

The sparsifier loads and stores the result's row for each stored element. These loops
hold a tile of the row in registers while they read the elements of a row (gather), or
hold a tile of the dense operand's row where the matrix is stored the other way round
(scatter).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from meshwright.features.sparse.mlir.conversions import first_dim, grouped
from meshwright.features.sparse.mlir.emitter import (
    Emitter,
    Tensor,
    loop_order,
    memory_type,
)
from meshwright.features.sparse.mlir.scalars import (
    binary_name,
    constant_text,
)
from meshwright.features.sparse.multiply.rows import Rows
from meshwright.features.sparse.multiply.tiles import Tile, Tiles
from meshwright.program.rules.rule import Dims

_VECTORS = 4
"""Sums that are added up at once, so that an addition need not wait for the one before."""


def sparse_times_dense(
    code: Emitter,
    tensors: Sequence[Tensor],
    maps: Sequence[Dims],
    out_dims: Dims,
) -> Tensor | None:
    """The product of a sparse matrix and a dense tensor; `None` if it has another form.

    One dim of the matrix is summed over, and the other is a dim of the result.
    maps, out_dims: the factors of each dim of the operands and of the result.
    """
    is_sparse = [t.format is not None for t in tensors]
    if sum(is_sparse) != 1 or any(len(fs) != 1 for dims in maps for fs in dims):
        return None
    where = is_sparse.index(True)
    matrix, dense = tensors[where], tensors[1 - where]
    held = loop_order(matrix, maps[where])
    factors = loop_order(dense, maps[1 - where])
    out = {f for dims in out_dims for f in dims}
    summed = [f for f in held if f in factors and f not in out]
    kept = [f for f in held if f in out and f not in factors]
    if len(summed) != 1 or len(kept) != 1 or set(factors) - {*summed} - out:
        return None
    right = first_dim(code, dense, factors, summed[0])
    extent = matrix.shape[held.index(kept[0])]
    tiles = Tiles.of(code, extent, right)
    product = _Product(code, Rows.of(code, matrix), tiles)
    found = product.gathered() if held[0] == kept[0] else product.scattered()
    rest = [f for f in factors if f != summed[0]]
    shape = extent, *(dense.shape[factors.index(f)] for f in rest)
    placed = [kept[0], *rest]
    order = tuple(placed.index(fs[0]) for fs in out_dims)
    return replace(_spread(code, found, shape), order=order)


def _spread(code: Emitter, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A matrix with its last dim as several, or as none."""
    for each in ((tensor.shape[0] * tensor.shape[1],), shape):
        tensor = grouped(code, tensor, each)
    return tensor


@dataclass(frozen=True, slots=True)
class _Product:
    """A sparse matrix, and the tiles of its product with a dense matrix."""

    code: Emitter
    rows: Rows
    tiles: Tiles

    def gathered(self) -> Tensor:
        """The product by a matrix whose rows are rows of the result."""
        self.rows.each(lambda row: self.tiles.each(lambda t: self._gather(row, t)))
        return self.tiles.finished()

    def scattered(self) -> Tensor:
        """The product by a matrix whose rows are rows of the dense operand."""
        result, out = self.tiles.result, self.tiles.out
        zero = self.code.emit(f"arith.constant {constant_text(0, result.dtype)}")
        types = f"{self.tiles.kind}) outs({out} : {memory_type(result)})"
        self.code.lines.append(f"linalg.fill ins({zero} : {types}")
        self.rows.each(lambda row: self.tiles.each(lambda t: self._scatter(row, t)))
        return self.tiles.finished()

    def _gather(self, row: str, tile: Tile) -> None:
        """One tile of one row of the result, as sums over the row's elements."""
        code, tiles, low, high = self.code, self.tiles, *self.rows.bounds(row)
        starts = tiles.zeros(tile)
        kinds = tiles.kinds(tile)

        def visit(column: str, value: str, totals: Sequence[str]) -> Sequence[str]:
            load = tiles.added(column)
            return [
                tiles.multiply_add(value, load(at, kind), total, kind)
                for (at, _), kind, total in zip(tile, kinds, totals, strict=True)
            ]

        together = max(1, _VECTORS // tiles.registers(tile))
        if together > 1:
            count = code.emit(f"arith.subi {high}, {low} : index")
            rest = code.emit(f"arith.remui {count}, {code.index(together)} : index")
            middle = code.emit(f"arith.subi {high}, {rest} : index")
            many = starts * together
            found = self.rows.elements(row, (low, middle), together, many, visit)
            starts = [
                (self._total(found[i :: len(kinds)], kind), kind)
                for i, kind in enumerate(kinds)
            ]
            low = middle
        sums = self.rows.elements(row, (low, high), 1, starts, visit)
        for (at, _), kind, total in zip(tile, kinds, sums, strict=True):
            tiles.store(total, row, at, kind)

    def _scatter(self, row: str, tile: Tile) -> None:
        """Products of one tile of one dense row, added to rows of the result."""
        tiles, kinds, load = self.tiles, self.tiles.kinds(tile), self.tiles.added(row)
        held = [load(at, kind) for (at, _), kind in zip(tile, kinds, strict=True)]

        def visit(column: str, value: str, _: Sequence[str]) -> Sequence[str]:
            for (at, _lanes), kind, factor in zip(tile, kinds, held, strict=True):
                before = tiles.load(column, at, kind)
                after = tiles.multiply_add(value, factor, before, kind)
                tiles.store(after, column, at, kind)
            return ()

        self.rows.elements(row, self.rows.bounds(row), 1, (), visit)

    def _total(self, parts: Sequence[str], kind: str) -> str:
        """The sum of vectors, added in pairs."""
        name = binary_name("add", self.tiles.result.dtype)
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [self.code.emit(f"{name} {a}, {b} : {kind}") for a, b in pairs]
        return parts[0]
