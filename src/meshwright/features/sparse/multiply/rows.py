"""Loops over the stored elements of a matrix that is held by rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from meshwright.features.sparse.mlir.emitter import Emitter, Tensor
from meshwright.features.sparse.mlir.scalars import MLIR_DTYPES

type Visit = Callable[[str, str, Sequence[str]], Sequence[str]]
"""Writes the ops on one element: it gets the column, the element and the carried values."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The arrays of a sparse tensor in compiled code.

    A row of blocks has an element for each column of each of its blocks.
    """

    code: Emitter
    tensor: Tensor
    starts: str
    columns: str
    data: str

    @classmethod
    def of(cls, code: Emitter, tensor: Tensor) -> Rows:
        """The arrays of this sparse tensor."""
        whole, kind = code.type_of(tensor), MLIR_DTYPES[tensor.dtype]
        starts, columns = (
            code.emit(
                f"sparse_tensor.{field} {tensor.name} {{level = 1 : index}} : "
                f"{whole} to memref<?xi32>"
            )
            for field in ("positions", "coordinates")
        )
        data = f"sparse_tensor.values {tensor.name} : {whole} to memref<?x{kind}>"
        return cls(code, tensor, starts, columns, code.emit(data))

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of a block; of one element if there are no blocks."""
        assert self.tensor.format is not None, "a sparse tensor"
        return self.tensor.format.block

    def each(self, body: Callable[[str], None]) -> None:
        """A loop over all rows."""
        zero, end = self.code.index(0), self.code.index(self.tensor.shape[0])

        def one(row: str, _: Sequence[str]) -> Sequence[str]:
            body(row)
            return ()

        self.code.loop(zero, end, 1, (), one)

    def bounds(self, row: str) -> tuple[str, str]:
        """The places where a row begins and ends in the array of columns."""
        code = self.code
        if self.block[0] > 1:
            size = code.index(self.block[0])
            row = code.emit(f"arith.divui {row}, {size} : index")
        after = code.emit(f"arith.addi {row}, {code.index(1)} : index")
        return code.index_at(self.starts, row), code.index_at(self.starts, after)

    def elements(
        self,
        row: str,
        bounds: tuple[str, str],
        step: int,
        starts: Sequence[tuple[str, str]],
        visit: Visit,
    ) -> list[str]:
        """A loop over the elements of a row between two places.

        step, starts: `visit` is called for `step` elements one after another, each with
            its share of the carried values.
        """
        share = len(starts) // step

        def body(at: str, carried: Sequence[str]) -> Sequence[str]:
            found: list[str] = []
            for ahead in range(step):
                place = at
                if ahead:
                    place = self.code.emit(
                        f"arith.addi {at}, {self.code.index(ahead)} : index"
                    )
                mine = slice(ahead * share, (ahead + 1) * share)
                found += self._stored(row, place, starts[mine], carried[mine], visit)
            return found

        return self.code.loop(*bounds, step, starts, body)

    def _stored(
        self,
        row: str,
        place: str,
        starts: Sequence[tuple[str, str]],
        carried: Sequence[str],
        visit: Visit,
    ) -> Sequence[str]:
        """Visits of one element, or of all columns of one row of a block."""
        code, (height, width) = self.code, self.block
        column = code.index_at(self.columns, place)
        kind = MLIR_DTYPES[self.tensor.dtype]
        if height == width == 1:
            value = code.emit(f"memref.load {self.data}[{place}] : memref<?x{kind}>")
            return visit(column, value, carried)
        tall, wide = code.index(height), code.index(width)
        within = code.emit(f"arith.remui {row}, {tall} : index")
        first = code.emit(f"arith.muli {place}, {tall} : index")
        first = code.emit(f"arith.addi {first}, {within} : index")
        first = code.emit(f"arith.muli {first}, {wide} : index")
        column = code.emit(f"arith.muli {column}, {wide} : index")

        def one(at: str, values: Sequence[str]) -> Sequence[str]:
            here = code.emit(f"arith.addi {first}, {at} : index")
            value = code.emit(f"memref.load {self.data}[{here}] : memref<?x{kind}>")
            across = code.emit(f"arith.addi {column}, {at} : index")
            return visit(across, value, values)

        kinds = [k for _, k in starts]
        return code.loop(
            code.index(0), wide, 1, [*zip(carried, kinds, strict=True)], one
        )
