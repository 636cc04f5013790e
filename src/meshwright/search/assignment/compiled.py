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
