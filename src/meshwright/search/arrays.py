"""Names of NumPy array types, and functions on the offsets of ragged arrays.

A ragged array is stored flat: its rows, of different lengths, follow one another.
Importing this module does not load numba, which takes long.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

type Floats = NDArray[np.float64]
type Ints = NDArray[np.int64]
type Bools = NDArray[np.bool_]


def starts_of(lengths: Sequence[int] | Ints) -> Ints:
    """The offset of each row of a ragged array stored flat, and the last row's end.

    lengths: length of each row, [N]. The result has length N + 1.
    """
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def owners_of(starts: Ints) -> Ints:
    """The index of the row that holds each element of a flat ragged array.

    starts: offsets of the rows, as from `starts_of`.
    """
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def ranges(firsts: Ints, lengths: Ints) -> Ints:
    """Ranges of consecutive integers, concatenated.

    Example: the firsts 5, 0 and the lengths 2, 3 give 5 6 0 1 2.
    """
    within = np.arange(lengths.sum()) - np.repeat(starts_of(lengths)[:-1], lengths)
    return np.repeat(firsts, lengths) + within
