"""Tiles of a result: vectors of its rows, which loops hold in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.features.sparse.mlir.emitter import Emitter, Tensor, memory_type
from meshwright.features.sparse.mlir.scalars import MLIR_DTYPES

_TILE_BYTES = 256
"""Bytes of a row that are held in registers: eight of 32 bytes each (AVX2), half of all."""

_VECTOR_BYTES = 64

type Tile = Sequence[tuple[str, int]]
"""Adjacent vectors of a row: the name of the first column, and the number of columns."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """The result of a product, a matrix, with the dense matrix whose rows are added up.

    right, out: the memory of the two.
    """

    code: Emitter
    result: Tensor
    right: str
    right_type: str
    out: str

    @classmethod
    def of(cls, code: Emitter, rows: int, right: Tensor) -> Tiles:
        """The tiles of a new result with so many rows."""
        result = Tensor.dense((rows, right.shape[1]), right.dtype)
        memory = code.buffer(right), memory_type(right)
        return cls(code, result, *memory, code.allocated(result))

    def finished(self) -> Tensor:
        """The result, after all of it is written."""
        return self.code.on_buffer(self.result, self.out)

    @property
    def kind(self) -> str:
        """MLIR's name of the dtype."""
        return MLIR_DTYPES[self.result.dtype]

    def each(self, write: Callable[[Tile], None]) -> None:
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

    def registers(self, tile: Tile) -> int:
        """The number of registers of 64 bytes that a row of a tile takes."""
        size = np.dtype(self.result.dtype).itemsize
        return sum(-(-lanes * size // _VECTOR_BYTES) for _, lanes in tile)

    def kinds(self, tile: Tile) -> list[str]:
        """The MLIR types of a tile's vectors."""
        return [f"vector<{lanes}x{self.kind}>" for _, lanes in tile]

    def zeros(self, tile: Tile) -> list[tuple[str, str]]:
        """Name and type of a vector of zeros for each vector of a tile."""
        zero = "0.0" if self.result.dtype.startswith("float") else "0"
        return [
            (self.code.emit(f"arith.constant dense<{zero}> : {kind}"), kind)
            for kind in self.kinds(tile)
        ]

    def added(self, row: str) -> Callable[[str, str], str]:
        """Loads from a row of the right matrix: by the first column and a vector's type."""
        return lambda at, kind: self.code.emit(
            f"vector.load {self.right}[{row}, {at}] : {self.right_type}, {kind}"
        )

    def load(self, row: str, at: str, kind: str) -> str:
        """A vector of the result so far."""
        types = f"{memory_type(self.result)}, {kind}"
        return self.code.emit(f"vector.load {self.out}[{row}, {at}] : {types}")

    def store(self, value: str, row: str, at: str, kind: str) -> None:
        """Write a vector of the result."""
        place = f"{self.out}[{row}, {at}] : {memory_type(self.result)}, {kind}"
        self.code.lines.append(f"vector.store {value}, {place}")

    def multiply_add(self, value: str, factor: str, total: str, kind: str) -> str:
        """The total with `value` times a vector added."""
        code = self.code
        spread = code.emit(f"vector.broadcast {value} : {self.kind} to {kind}")
        if self.result.dtype.startswith("float"):
            return code.emit(f"vector.fma {spread}, {factor}, {total} : {kind}")
        product = code.emit(f"arith.muli {spread}, {factor} : {kind}")
        return code.emit(f"arith.addi {total}, {product} : {kind}")
