"""Sparse matrices whose indices are out of range, unsorted or double; needs no MLIR."""

import numpy as np
import pytest
import scipy.sparse as ss

from meshwright.errors import SparseError
from meshwright.features.sparse.mlir.formats import parse_format
from meshwright.features.sparse.storage import checked, pack


def matrix(form, index=np.int32):
    """A matrix of 4 x 6 with elements in each row."""
    dense = np.arange(24.0, dtype=np.float32).reshape(4, 6) % 5
    found = ss.csr_array(dense).asformat(form)
    if form != "coo":
        found.indptr, found.indices = (
            found.indptr.astype(index),
            found.indices.astype(index),
        )
    return found


def corrupt(found, fault):
    """The matrix, with one kind of wrong indices."""
    indices = found.coords[1] if found.format == "coo" else found.indices
    if fault == "negative":
        indices[2] = -3
    elif fault == "outside":
        indices[-1] = 1_000_000
    elif fault == "from one":
        indices += 1
    elif fault == "row" and found.format == "coo":
        found.coords[0][-1] = 4
    elif fault == "falls":
        found.indptr[2] = found.indptr[1] - 1
    elif fault == "begins":
        found.indptr[0] = 1
    elif fault == "ends":
        found.indptr[-1] += 5
    elif fault == "few data":
        found.data = found.data[:2]
    return found


FAULTS = [
    *((form, fault) for form in ("csr", "csc", "bsr", "coo")
      for fault in ("negative", "outside", "from one")),
    *((form, fault) for form in ("csr", "csc", "bsr")
      for fault in ("falls", "begins", "ends", "few data")),
    ("coo", "row"), ("coo", "few data"),
]  # fmt: skip


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize(("form", "fault"), FAULTS)
def test_corrupt_indices_are_refused_before_anything_follows_them(form, fault, index):
    given = corrupt(matrix(form, index), fault)
    for wanted in ("csr", "csc", "coo", "bsr:2"):
        for wants_order in (False, True):
            with pytest.raises(
                SparseError, match=r"w\.up is not a valid .* matrix of shape"
            ):
                pack(
                    given,
                    parse_format(wanted),
                    "float32",
                    "w.up",
                    wants_order=wants_order,
                )


def test_the_error_says_what_was_wrong_and_what_is_allowed():
    cases = {
        "from one": "index 6 of .* is out of range; wanted 0 to 5; indices count from 0",
        "negative": "index -3 of element 2 is out of range; wanted 0 to 5",
        "falls": "indptr falls from 4 to 3 at row 1",
        "ends": "indptr ends with",
        "begins": "indptr begins with 1; wanted 0",
    }
    for fault, wanted in cases.items():
        with pytest.raises(SparseError, match=wanted):
            checked(corrupt(matrix("csr"), fault), "w", wants_order=False)
    with pytest.raises(SparseError, match="row 4 of element"):
        checked(corrupt(matrix("coo"), "row"), "w", wants_order=False)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_unsorted_and_double_elements_are_sorted_where_order_is_wanted(form):
    rows, columns = np.array([3, 0, 3, 1, 3]), np.array([5, 1, 0, 2, 5])
    data = np.arange(1.0, 6, dtype=np.float32)
    given = ss.coo_array((data, (rows, columns)), (4, 6))
    arrays = pack(given, parse_format(form), "float32", "s", wants_order=True)
    tidy = given.tocsr().asformat("csr" if form == "coo" else form)
    tidy.sum_duplicates()
    for found, wanted in zip(
        arrays, (tidy.indptr, tidy.indices, tidy.data), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)
    starts, columns, data = pack(
        given, parse_format("coo"), "float32", "s", wants_order=False
    )
    loose = ss.csr_array((data, columns, starts), (4, 6))
    np.testing.assert_array_equal(loose.toarray(), given.toarray())
