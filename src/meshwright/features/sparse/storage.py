"""SciPy matrices as the arrays that compiled code reads, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as scipy_sparse

from meshwright.errors import SparseError
from meshwright.features.sparse.indices import (
    CORRUPT,
    SORTED,
    element_state,
    fault_of_index,
    fault_of_rows,
    grouped_by_row,
    narrowed,
    row_state,
    starts_of_rows,
)
from meshwright.features.sparse.mlir.emitter import Tensor
from meshwright.features.sparse.mlir.formats import INDEX, Format

_COMPRESSED = ("csr", "csc", "bsr")
"""SciPy's formats with compressed rows, or columns."""

_INDEX_DTYPE = np.dtype(INDEX)


def pack(
    matrix: Any, form: Format, dtype: Any, path: str, *, wants_order: bool
) -> list[np.ndarray]:
    """The arrays that hold a matrix: starts of rows, columns, then elements.

    matrix: a SciPy matrix in any format, or a dense array.
    path: the argument's name for errors. Raises `SparseError` for indices that are out
        of range, which compiled code would follow.
    wants_order: whether columns must ascend in each row, without duplicates.
    """
    if not scipy_sparse.issparse(matrix):
        matrix = scipy_sparse.coo_array(np.asarray(matrix))
    if matrix.format == form.name == "coo" and not wants_order:
        return _packed_elements(matrix, dtype, path)
    wanted = "csr" if form.name == "coo" else form.name
    if matrix.format != wanted or (
        form.name == "bsr" and matrix.blocksize != form.block
    ):
        checked(matrix, path, wants_order=False)
        blocks = {"blocksize": form.block} if form.name == "bsr" else {}
        matrix = getattr(matrix, f"to{wanted}")(**blocks)
    state, arrays = checked(matrix, path, wants_order=wants_order)
    if state != SORTED:
        matrix = matrix.copy()
        matrix.has_canonical_format = matrix.has_sorted_indices = False
        matrix.sum_duplicates()
        arrays = [_in_32_bits(a) for a in (matrix.indptr, matrix.indices)]
    return [*arrays, np.ascontiguousarray(matrix.data, dtype).reshape(-1)]


def checked(
    matrix: Any, path: str, *, wants_order: bool
) -> tuple[int, list[np.ndarray]]:
    """The state of a SciPy matrix's indices, and these in 32 bits.

    The two arrays are starts and columns of rows, or rows and columns of elements.
    Raises `SparseError` for indices that are corrupt. Formats other than CSR, CSC, BSR
    and COO are taken as right, and have no such arrays.
    """
    form, few = matrix.format, len(matrix.data)
    if form not in (*_COMPRESSED, "coo"):
        return SORTED, []
    given = matrix.coords if form == "coo" else (matrix.indptr, matrix.indices)
    first, second = _in_32_bits(given[0]), _in_32_bits(given[1])
    if form == "coo":
        state = element_state(first, second, matrix.shape[0], matrix.shape[1], few)
        fault = map(fault_of_index, ("row", "column"), given, matrix.shape)
    else:
        rows, columns = _rows_and_columns(matrix)
        if len(given[0]) != rows + 1:
            size = f"indptr has {len(given[0])} entries; wanted {rows + 1}"
            raise _corrupt(path, matrix, size)
        state = row_state(first, second, columns, few, wants_order)
        fault = map(fault_of_rows, given[:1], given[1:], [columns])
    if state == CORRUPT:
        missing = f"there are {few} elements in data"
        raise _corrupt(path, matrix, "".join(fault) or missing)
    return state, [first, second]


def _rows_and_columns(matrix: Any) -> tuple[int, int]:
    """The numbers of compressed rows and of columns of a SciPy matrix, in blocks."""
    rows, columns = matrix.shape
    if matrix.format == "bsr":
        height, width = matrix.blocksize
        return rows // height, columns // width
    return (columns, rows) if matrix.format == "csc" else (rows, columns)


def _in_32_bits(indices: Any) -> np.ndarray:
    """Indices in 32 bits; those that do not fit become -1."""
    if indices.dtype == _INDEX_DTYPE:
        return np.ascontiguousarray(indices)
    wide = np.ascontiguousarray(indices, np.int64).view(np.uint64)
    return narrowed(wide).view(INDEX)


def _corrupt(path: str, matrix: Any, fault: str) -> SparseError:
    return SparseError(
        f"{path} is not a valid {matrix.format} matrix of shape {matrix.shape}: {fault}. "
        "Compiled code would read other memory; mend the matrix's index arrays"
    )


def _packed_elements(matrix: Any, dtype: Any, path: str) -> list[np.ndarray]:
    """The arrays of a COO matrix, in the order of rows."""
    state, (rows, columns) = checked(matrix, path, wants_order=False)
    data = np.ascontiguousarray(matrix.data, dtype)
    if state != SORTED:
        return [*grouped_by_row(rows, columns, data, matrix.shape[0])]
    starts = starts_of_rows(rows, matrix.shape[0])
    return [starts, columns, data]


def unpack(buffers: Sequence[np.ndarray], held: Tensor, wanted: Format) -> Any:
    """The SciPy array in the format `wanted`, from the arrays of the tensor it is in."""
    starts, columns, data = buffers
    shape = held.shape
    if held.format is not None and held.format.name == "bsr":
        blocks = data.reshape(-1, *held.format.block)
        return scipy_sparse.bsr_array((blocks, columns, starts), shape)
    rows = scipy_sparse.csr_array((data, columns, starts), shape)
    return in_format(rows if held.is_plain else rows.T, wanted)


def in_format(matrix: Any, form: Format) -> Any:
    """The SciPy array in this format."""
    if form.name == "bsr":
        return matrix.tobsr(blocksize=form.block)
    return matrix.asformat(form.name)
