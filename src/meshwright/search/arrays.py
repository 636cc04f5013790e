"""NumPy array types, and offsets of ragged arrays; importing them loads no numba."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

type Floats = NDArray[np.float64]
type Ints = NDArray[np.int64]
type Bools = NDArray[np.bool_]


def starts_of(lengths: Sequence[int] | Ints) -> Ints:
    """Offsets of pieces that are stored one after another, and the end of the last.

    lengths: length of each piece, [N]. Result: [N + 1].
    """
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def owners_of(starts: Ints) -> Ints:
    """The index of the piece that contains each element.

    starts: offsets of the pieces, as from `starts_of`.
    """
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def ranges(firsts: Ints, lengths: Ints) -> Ints:
    """Ranges of consecutive integers, concatenated.

    firsts, lengths: first number and length of each range, [N].
    """
    within = np.arange(lengths.sum()) - np.repeat(starts_of(lengths)[:-1], lengths)
    return np.repeat(firsts, lengths) + within
