"""Products of a sparse matrix and a dense tensor, as loops over vectors.

The sparsifier loads and stores the result's row for each stored element. These loops
hold a tile of the row in registers while they read the elements of a row (gather), or
hold a tile of the dense operand's row where the matrix is stored the other way round
(scatter).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshwright.features.sparse.conversions import first_dim, grouped
from meshwright.features.sparse.emitter import Emitter, Tensor, loop_order, memory_type
from meshwright.features.sparse.rows import Rows
from meshwright.features.sparse.scalars import (
    MLIR_DTYPES,
    binary_name,
    constant_text,
)
from meshwright.program.rules.rule import Dims

_TILE_BYTES = 256
"""Bytes of a row that are held in registers: eight of 32 bytes each (AVX2), half of all."""

_VECTORS = 4
"""Sums that are added up at once, so that an addition need not wait for the one before."""

_VECTOR_BYTES = 64

type _Tile = Sequence[tuple[str, int]]
"""Adjacent vectors of a row: the name of the first column, and the number of columns."""


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
    product = _Product.of(code, matrix, right, extent)
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
    """A sparse matrix, a dense matrix with as many rows as are summed over, a result."""

    code: Emitter
    rows: Rows
    right: str
    right_type: str
    result: Tensor
    out: str

    @classmethod
    def of(cls, code: Emitter, matrix: Tensor, right: Tensor, extent: int) -> _Product:
        """The product with memory for a result of `extent` rows."""
        result = Tensor.dense((extent, right.shape[1]), right.dtype)
        memory = code.buffer(right), memory_type(right)
        return cls(code, Rows.of(code, matrix), *memory, result, code.allocated(result))

    @property
    def kind(self) -> str:
        """MLIR's name of the dtype."""
        return MLIR_DTYPES[self.result.dtype]

    def gathered(self) -> Tensor:
        """The product by a matrix whose rows are rows of the result."""
        self.rows.each(lambda row: self._tiles(lambda tile: self._gather(row, tile)))
        return self.code.on_buffer(self.result, self.out)

    def scattered(self) -> Tensor:
        """The product by a matrix whose rows are rows of the dense operand."""
        zero = self.code.emit(f"arith.constant {constant_text(0, self.result.dtype)}")
        kind, types = self.kind, memory_type(self.result)
        self.code.lines.append(
            f"linalg.fill ins({zero} : {kind}) outs({self.out} : {types})"
        )
        self.rows.each(lambda row: self._tiles(lambda tile: self._scatter(row, tile)))
        return self.code.on_buffer(self.result, self.out)

    def _tiles(self, write: Callable[[_Tile], None]) -> None:
        """Calls of `write` for all columns: a loop over whole tiles, and the rest.

        The vectors of the rest are as wide as the binary digits of its width.
        """
        code, width = self.code, self.result.shape[1]
        lanes = _TILE_BYTES // np.dtype(self.result.dtype).itemsize
        end = width // lanes * lanes

        def whole(at: str, _: Sequence[str]) -> Sequence[str]:
            write([(at, lanes)])
            return ()

        if end:
            code.loop(code.index(0), code.index(end), lanes, (), whole)
        rest: list[tuple[str, int]] = []
        at = end
        while lanes := lanes // 2:
            if (width - at) & lanes:
                rest.append((code.index(at), lanes))
                at += lanes
        if rest:
            write(rest)

    def _gather(self, row: str, tile: _Tile) -> None:
        """One tile of one row of the result, as sums over the row's elements."""
        code, low, high = self.code, *self.rows.bounds(row)
        kinds = [self._vector(lanes) for _, lanes in tile]
        zero = "0.0" if self.result.dtype.startswith("float") else "0"
        sums = [code.emit(f"arith.constant dense<{zero}> : {kind}") for kind in kinds]

        def visit(column: str, value: str, totals: Sequence[str]) -> Sequence[str]:
            return [
                self._add(value, self._load(self.right, self.right_type, column, at, kind),
                          total, kind)
                for (at, _), kind, total in zip(tile, kinds, totals, strict=True)
            ]  # fmt: skip

        size = np.dtype(self.result.dtype).itemsize
        vectors = sum(-(-lanes * size // _VECTOR_BYTES) for _, lanes in tile)
        together = max(1, _VECTORS // vectors)
        if together > 1:
            count = code.emit(f"arith.subi {high}, {low} : index")
            by = code.index(together)
            rest = code.emit(f"arith.remui {count}, {by} : index")
            middle = code.emit(f"arith.subi {high}, {rest} : index")
            starts = [*zip(sums, kinds, strict=True)] * together
            found = self.rows.elements(row, (low, middle), together, starts, visit)
            sums = [
                self._total(found[i :: len(kinds)], kind)
                for i, kind in enumerate(kinds)
            ]
            low = middle
        starts = [*zip(sums, kinds, strict=True)]
        sums = self.rows.elements(row, (low, high), 1, starts, visit)
        for (at, _), kind, total in zip(tile, kinds, sums, strict=True):
            self._store(total, row, at, kind)

    def _scatter(self, row: str, tile: _Tile) -> None:
        """Products of one tile of one dense row, added to rows of the result."""
        kinds = [self._vector(lanes) for _, lanes in tile]
        held = [
            self._load(self.right, self.right_type, row, at, kind)
            for (at, _), kind in zip(tile, kinds, strict=True)
        ]
        types = memory_type(self.result)

        def visit(column: str, value: str, _: Sequence[str]) -> Sequence[str]:
            for (at, _lanes), kind, factor in zip(tile, kinds, held, strict=True):
                before = self._load(self.out, types, column, at, kind)
                self._store(self._add(value, factor, before, kind), column, at, kind)
            return ()

        self.rows.elements(row, self.rows.bounds(row), 1, (), visit)

    def _vector(self, lanes: int) -> str:
        return f"vector<{lanes}x{self.kind}>"

    def _load(self, memory: str, types: str, row: str, at: str, kind: str) -> str:
        return self.code.emit(f"vector.load {memory}[{row}, {at}] : {types}, {kind}")

    def _store(self, value: str, row: str, at: str, kind: str) -> None:
        place = f"{self.out}[{row}, {at}] : {memory_type(self.result)}, {kind}"
        self.code.lines.append(f"vector.store {value}, {place}")

    def _add(self, value: str, factor: str, total: str, kind: str) -> str:
        """The total with `value` times a vector added."""
        code = self.code
        spread = code.emit(f"vector.broadcast {value} : {self.kind} to {kind}")
        if self.result.dtype.startswith("float"):
            return code.emit(f"vector.fma {spread}, {factor}, {total} : {kind}")
        product = code.emit(f"arith.muli {spread}, {factor} : {kind}")
        return code.emit(f"arith.addi {total}, {product} : {kind}")

    def _total(self, parts: Sequence[str], kind: str) -> str:
        """The sum of vectors, added in pairs."""
        name = binary_name("add", self.result.dtype)
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [self.code.emit(f"{name} {a}, {b} : {kind}") for a, b in pairs]
        return parts[0]
