"""The buffers that the guided search tries next, and its independent parts."""

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from meshwright.features.allocate.problem.sections import BufferColumns
from meshwright.search.arrays import Floats, Ints

_PHASES = 10
"""Phases of contention: a tenth of the capacity each. The paper has no figure."""


class Candidates:
    """Orders of buffers, and the phase of each: most contended first.

    A buffer's contention is the sum of the sizes in its fullest section. Buffers that
    caused a major backtrack come before all others of their phase, the latest first.
    """

    def __init__(self, columns: BufferColumns, capacity: int) -> None:
        self._size = columns.size
        self._duration = columns.duration
        self._phase = _contention(columns) * _PHASES // max(1, capacity)
        self._cause = np.zeros(len(columns.size), np.int64)
        self._num_causes = 0
        self.shuffle(np.ones(len(columns.size)))

    def shuffle(self, noise: Floats) -> None:
        """Multiply what sorts the buffers by [n] factors."""
        size, duration = self._size * noise, self._duration * noise
        self._keys = (duration, size, self._size * duration)

    def note_cause(self, buffer: int) -> None:
        """Put a buffer first, because it has caused a major backtrack."""
        self._num_causes += 1
        self._cause[buffer] = self._num_causes

    def of(self, unplaced: Sequence[int], failed: Collection[int]) -> Iterator[int]:
        """Candidates of the most contended phase, without those that have failed.

        These are the buffer that last caused a major backtrack, then those of longest
        lifetime, largest size and largest area.
        """
        phase = max(self._phase[i] for i in unplaced)
        group = [i for i in unplaced if self._phase[i] == phase]
        causes = [i for i in group if self._cause[i]]
        firsts = [max(causes, key=lambda i: self._cause[i])] if causes else []
        for key in self._keys:
            firsts.append(max(group, key=lambda i: key[i]))
        return (i for i in dict.fromkeys(firsts) if i not in failed)


def independent_parts(columns: BufferColumns) -> list[list[int]]:
    """Groups of buffers of which none is live together with one of another group."""
    n = len(columns.size)
    ones = np.ones(len(columns.near))
    together = csr_array((ones, columns.near, columns.near_at), shape=(n, n))
    num_parts, labels = connected_components(together, directed=False)
    return [np.flatnonzero(labels == part).tolist() for part in range(num_parts)]


def _contention(columns: BufferColumns) -> Ints:
    """[n] bytes live in the fullest section of each buffer."""
    most = np.zeros(len(columns.size), np.int64)
    for k in range(len(columns.of_at) - 1):
        members = columns.of[columns.of_at[k] : columns.of_at[k + 1]]
        most[members] = np.maximum(most[members], columns.size[members].sum())
    return most
