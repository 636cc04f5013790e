"""SciPy matrices as the arrays that compiled code reads, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as scipy_sparse

from meshwright.errors import SparseError
from meshwright.features.sparse.emitter import Tensor
from meshwright.features.sparse.formats import INDEX, Format
from meshwright.features.sparse.indices import (
    CORRUPT,
    SORTED,
    element_state,
    fault_of_index,
    fault_of_rows,
    grouped_by_row,
    row_state,
    starts_of_rows,
)

_UNSIGNED = {np.dtype(np.int32): np.uint32, np.dtype(np.int64): np.uint64}


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
        state_of(matrix, path, wants_order=False)
        blocks = {"blocksize": form.block} if form.name == "bsr" else {}
        matrix = getattr(matrix, f"to{wanted}")(**blocks)
    if state_of(matrix, path, wants_order=wants_order) != SORTED:
        matrix = matrix.copy()
        matrix.has_canonical_format = matrix.has_sorted_indices = False
        matrix.sum_duplicates()
    arrays = (matrix.indptr, INDEX), (matrix.indices, INDEX), (matrix.data, dtype)
    return [np.ascontiguousarray(a, kind).reshape(-1) for a, kind in arrays]


def state_of(matrix: Any, path: str, *, wants_order: bool) -> int:
    """The state of a SciPy matrix's indices; `SparseError` if they are corrupt.

    Formats other than CSR, CSC, BSR and COO are taken as right.
    """
    extents = tuple(matrix.shape)
    if matrix.format == "coo":
        arrays = matrix.coords
        state = _state(element_state, arrays, extents)
        found = map(fault_of_index, ("row", "column"), arrays, extents)
        fault = "".join(found) if state == CORRUPT else ""
        is_short = min(map(len, (arrays[1], matrix.data))) < len(arrays[0])
    elif matrix.format in ("csr", "csc", "bsr"):
        blocks = matrix.blocksize if matrix.format == "bsr" else (1, 1)
        extents = tuple(n // b for n, b in zip(extents, blocks, strict=True))
        rows, columns = extents[::-1] if matrix.format == "csc" else extents
        arrays = matrix.indptr, matrix.indices
        if len(matrix.indptr) != rows + 1:
            size = f"indptr has {len(matrix.indptr)} entries; wanted {rows + 1}"
            raise _corrupt(path, matrix, size)
        state = _state(row_state, arrays, (columns,), wants_order)
        fault = fault_of_rows(*arrays, columns) if state == CORRUPT else ""
        is_short = len(matrix.data) < matrix.indptr[-1]
    else:
        return SORTED
    if state == CORRUPT:
        raise _corrupt(path, matrix, fault)
    if is_short:
        raise _corrupt(path, matrix, f"there are {len(matrix.data)} elements in data")
    return state


def _state(check: Any, arrays: Sequence[Any], extents: Any, *options: Any) -> int:
    """The result of a check of indices, which are passed as unsigned integers."""
    kind = _UNSIGNED.get(arrays[0].dtype)
    if kind is None or arrays[1].dtype != arrays[0].dtype:
        arrays = [np.asarray(a, np.int64) for a in arrays]
        kind = np.uint64
    views = [np.ascontiguousarray(a).view(kind) for a in arrays]
    return check(*views, *map(kind, extents), *options)


def _corrupt(path: str, matrix: Any, fault: str) -> SparseError:
    return SparseError(
        f"{path} is not a valid {matrix.format} matrix of shape {matrix.shape}: {fault}. "
        "Compiled code would read other memory; mend the matrix's index arrays"
    )


def _packed_elements(matrix: Any, dtype: Any, path: str) -> list[np.ndarray]:
    """The arrays of a COO matrix, in the order of rows."""
    state = state_of(matrix, path, wants_order=False)
    rows, columns = matrix.coords
    data = np.ascontiguousarray(matrix.data, dtype)
    if state != SORTED:
        return [*grouped_by_row(rows, columns, data, matrix.shape[0])]
    starts = starts_of_rows(rows, matrix.shape[0])
    return [starts, np.ascontiguousarray(columns, INDEX), data]


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
