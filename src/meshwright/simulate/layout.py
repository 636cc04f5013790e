"""What values take in a device's memory: their dtype there, and padding to tiles."""

from __future__ import annotations

import math
from collections.abc import Collection
from itertools import permutations

from meshwright.ir import Value, num_bytes

_NARROW = 2
"""Bytes of an element that is kept as bfloat16."""


class Layout:
    """How the values of one device program lie in memory.

    tile: rows and columns to which the two minor dims are filled up; which dims those
        are is the compiler's choice, and taken to be those that waste least.
    narrow: float32 values that are kept as bfloat16.
    virtual: inputs of bodies that never are in memory, since what reads them makes them.
    inside: values that are part of others, such as one turn's slice of what a loop
        scans: they move, and take no memory of their own.
    """

    def __init__(
        self, tile: tuple[int, int] = (1, 1), narrow: Collection[Value] = ()
    ) -> None:
        self.tile = tile
        self.narrow = frozenset(narrow)
        self.virtual: set[Value] = set()
        self.inside: set[Value] = set()
        self._sizes: dict[Value, int] = {}

    def num_bytes(self, value: Value) -> int:
        """Bytes of a value's elements: what moves when it does."""
        if value in self.virtual:
            return 0
        if value in self.narrow:
            return _NARROW * math.prod(value.shape)
        return num_bytes(value)

    def size(self, value: Value) -> int:
        """Bytes that a value takes, padding included."""
        if value in self.inside:
            return 0
        known = self._sizes.get(value)
        if known is None:
            plain, elements = self.num_bytes(value), math.prod(value.shape)
            padded = self._padded(value.shape, elements) if elements else 0
            known = self._sizes[value] = plain * padded // max(elements, 1)
        return known

    def _padded(self, shape: tuple[int, ...], elements: int) -> int:
        """Elements with padding."""
        rows, columns = self.tile
        if columns == 1 or not shape:
            return elements
        if len(shape) == 1:
            return _up(shape[0], columns)
        return min(
            elements // (a * b) * _up(a, columns) * _up(b, rows)
            for a, b in set(permutations(shape, 2))
        )


def _up(extent: int, tile: int) -> int:
    return -(-extent // tile) * tile
