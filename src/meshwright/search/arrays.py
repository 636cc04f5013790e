"""NumPy array types, and offsets of ragged arrays; importing them loads no numba."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

type Floats = NDArray[np.float64]
type Ints = NDArray[np.int64]
type Bools = NDArray[np.bool_]


def starts_of(lengths: Sequence[int] | Ints) -> Ints:
    """Offsets of consecutive pieces of these lengths, and the end of the last."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def owners_of(starts: Ints) -> Ints:
    """Index of the piece that holds each element, by the offsets of the pieces."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def ranges(firsts: Ints, lengths: Ints) -> Ints:
    """Concatenated ranges of consecutive numbers, by their first numbers and lengths."""
    within = np.arange(lengths.sum()) - np.repeat(starts_of(lengths)[:-1], lengths)
    return np.repeat(firsts, lengths) + within
