"""Storage formats of sparse matrices: encodings in MLIR, and arrays in SciPy.

A format is a list of levels, about one per dim. A dense level stores all positions. A
compressed level stores the positions of elements that are there, and where each row of
them begins. A singleton level stores one coordinate for each position of the level
before. (MLIR, dialect `sparse_tensor`; F. Kjolstad et al., "The Tensor Algebra
Compiler", OOPSLA 2017.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as scipy_sparse

from meshwright.errors import SparseError, did_you_mean

INDEX = "int32"
"""The dtype of the arrays of positions and coordinates."""

_LEVELS = {
    "csr": "(i, j) -> (i : dense, j : compressed)",
    "csc": "(i, j) -> (j : dense, i : compressed)",
    "coo": "(i, j) -> (i : compressed(nonunique), j : singleton(soa))",
}

_NAMES = ("dense", "csr", "csc", "coo", "bsr")


@dataclass(frozen=True, slots=True)
class Format:
    """A storage format of sparse matrices.

    name: "csr", "csc", "coo" or "bsr". block: rows and columns of the blocks of "bsr".
    """

    name: str
    block: tuple[int, int] = (1, 1)

    @property
    def encoding(self) -> str:
        """The MLIR attribute of tensors in this format."""
        rows, columns = self.block
        levels = _LEVELS.get(self.name) or (
            f"(i, j) -> (i floordiv {rows} : dense, j floordiv {columns} : compressed, "
            f"i mod {rows} : dense, j mod {columns} : dense)"
        )
        fields = f"map = {levels}, posWidth = 32, crdWidth = 32"
        return f"#sparse_tensor.encoding<{{ {fields} }}>"

    @property
    def num_buffers(self) -> int:
        """Number of arrays of positions and coordinates, without the elements."""
        return 3 if self.name == "coo" else 2

    def why_not(self, shape: Sequence[int]) -> str | None:
        """Why an array of this shape cannot have the format; `None` if it can."""
        if len(shape) != 2:
            return f"{self} is for matrices, and the array has shape {tuple(shape)}"
        sizes = zip(shape, self.block, strict=True)
        if any(extent % size for extent, size in sizes):
            return f"blocks of {self.block} do not divide the shape {tuple(shape)}"
        return None

    def pack(self, matrix: Any, dtype: Any) -> list[np.ndarray]:
        """The arrays that store a matrix: positions and coordinates, then elements.

        matrix: a SciPy matrix in any format, or a dense array.
        """
        found = self._converted(matrix)
        if self.name == "coo":
            ends = np.array([0, found.nnz], INDEX)
            rows, columns = (np.ascontiguousarray(c, INDEX) for c in found.coords)
            return [ends, rows, columns, np.ascontiguousarray(found.data, dtype)]
        indices = [
            np.ascontiguousarray(a, INDEX) for a in (found.indptr, found.indices)
        ]
        return [*indices, np.ascontiguousarray(found.data, dtype).reshape(-1)]

    def _converted(self, matrix: Any) -> Any:
        """The matrix as a SciPy array in this format, sorted and without duplicates."""
        given = (
            matrix
            if scipy_sparse.issparse(matrix)
            else scipy_sparse.coo_array(np.asarray(matrix))
        )
        if self.name == "bsr":
            found = scipy_sparse.bsr_array(given.tobsr(blocksize=self.block))
        elif self.name != "coo":
            found = given.asformat(self.name)
        elif _is_row_major(given):
            return given
        else:
            found = given.tocsr()
        if not found.has_canonical_format:
            found = found.copy()
            found.sort_indices()
        if not found.has_canonical_format:
            found.sum_duplicates()
        return found.tocoo() if self.name == "coo" else found

    def unpack(self, buffers: Sequence[np.ndarray], shape: tuple[int, int]) -> Any:
        """The SciPy array with these arrays of positions, coordinates and elements."""
        *indices, data = buffers
        if self.name == "coo":
            _, rows, columns = indices
            return scipy_sparse.coo_array((data, (rows, columns)), shape)
        if self.name == "bsr":
            blocks = data.reshape(-1, *self.block)
            return scipy_sparse.bsr_array((blocks, indices[1], indices[0]), shape)
        is_rows = self.name == "csr"
        make = scipy_sparse.csr_array if is_rows else scipy_sparse.csc_array
        return make((data, indices[1], indices[0]), shape)

    def __str__(self) -> str:
        rows, columns = self.block
        return f"bsr:{rows}x{columns}" if self.name == "bsr" else self.name


def _is_row_major(matrix: Any) -> bool:
    """Whether a matrix is in COO format, by rows and columns, without duplicates.

    SciPy's flag of canonical COO matrices does not tell which dim is sorted first.
    """
    if matrix.format != "coo":
        return False
    rows, columns = (np.asarray(c, np.int64) for c in matrix.coords)
    places = rows * matrix.shape[1] + columns
    return bool(np.all(places[1:] > places[:-1]))


def parse_format(text: str) -> Format | None:
    """The format that a text names: `csr`, `csc`, `coo`, `bsr:4x4` or `dense`.

    >>> str(parse_format("bsr:8")), parse_format("dense")
    ('bsr:8x8', None)
    """
    name, _, block = text.partition(":") if isinstance(text, str) else ("", "", "")
    if name not in _NAMES or (block and name != "bsr"):
        raise SparseError(
            f"format {text!r} is unknown; wanted one of {', '.join(_NAMES)}, with the size "
            f"of blocks for bsr, as in 'bsr:4x4'{did_you_mean(text, _NAMES)}"
        )
    if name == "dense":
        return None
    if name != "bsr":
        return Format(name)
    sizes = (block or "4").split("x")
    if len(sizes) > 2 or not all(s.isdigit() and int(s) for s in sizes):
        raise SparseError(
            f"blocks of {text!r} have no size; wanted 'bsr:4x4' or 'bsr:4'"
        )
    return Format(name, (int(sizes[0]), int(sizes[-1])))
