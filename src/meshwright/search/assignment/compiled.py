"""The decorator of inner loops: compiled by numba, cached on disk, free of the GIL."""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np
from numpy.typing import NDArray

type Floats = NDArray[np.float64]
type Ints = NDArray[np.int64]
type Bools = NDArray[np.bool_]


def compiled[**P, R](fn: Callable[P, R]) -> Callable[P, R]:
    """The same function, as machine code; its signature stays for the type checker."""
    return numba.njit(cache=True, nogil=True)(fn)


def compiled_in_place[**P, R](fn: Callable[P, R]) -> Callable[P, R]:
    """The same, for a function that makes no arrays.

    Uses of the arrays that it is given are not counted: where many short functions hand
    on a record of twenty arrays, counting takes four fifths of the time.
    """
    # Numba itself has `_nrt`; its stubs do not.
    return numba.njit(cache=True, nogil=True, _nrt=False)(fn)  # pyright: ignore[reportCallIssue, reportUnknownVariableType]
