"""What values take in a device's memory: their dtype there, and padding to tiles."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from copy import copy
from itertools import permutations
from typing import Any

from meshwright.program.ir import Program, Value, itemsize_bytes

_WORD = 4
"""Bytes in which rows of smaller elements are packed."""

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
    on_chip: values that scratch memory holds for as long as they live.
    tight: values that lie without padding.
    images: by shape, the batch and feature dims of what convolutions read or make;
        those are its minor dims then.
    stacks: by shape, the dims of what a batch of products makes that are not of the batch;
        two of them are its minor dims.
    lies: of values that lie in another shape, that one, and its minor dims if known.
    """

    def __init__(
        self, tile: tuple[int, int] = (1, 1), narrow: Collection[Value] = ()
    ) -> None:
        self.tile = tile
        self.narrow = frozenset(narrow)
        self.virtual: set[Value] = set()
        self.inside: set[Value] = set()
        self.on_chip: frozenset[Value] = frozenset()
        self.tight: frozenset[Value] = frozenset()
        self.images: dict[tuple[int, ...], tuple[int, int]] = {}
        self.stacks: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.lies: dict[Value, tuple[tuple[int, ...], tuple[int, int] | None]] = {}
        self._given: frozenset[Value] = frozenset()
        self._sizes: dict[Value, int] = {}
        self._elements: dict[
            tuple[tuple[int, ...], tuple[int, int] | None, bool, int], int
        ] = {}

    def keeping(self, on_chip: frozenset[Value]) -> Layout:
        """The same where scratch memory holds these values; what is known is shared."""
        kept = copy(self)
        kept.on_chip = on_chip
        return kept

    def without_padding(self, tight: frozenset[Value]) -> Layout:
        """The same where these values lie so; what is known is shared."""
        kept = copy(self)
        kept.tight = tight
        return kept

    def num_bytes(self, value: Value) -> int:
        """Bytes of a value's elements: what moves when it does."""
        return self.itemsize(value) * math.prod(value.shape)

    def itemsize(self, value: Value) -> int:
        """Bytes of one element."""
        if value in self.virtual:
            return 0
        return _NARROW if value in self.narrow else itemsize_bytes(value.dtype)

    def size(self, value: Value) -> int:
        """Bytes that a value takes, padding included."""
        if value in self.inside or value in self.on_chip:
            return 0
        if value in self.tight:
            return self.num_bytes(value)
        known = self._sizes.get(value)
        if known is None:
            elements = math.prod(value.shape)
            plain = self.itemsize(value) * elements
            lies = self.lies.get(value)
            shape, minor = lies or (value.shape, None)
            is_given = lies is not None or value in self._given
            key = shape, minor, is_given, self.itemsize(value)
            padded = self._elements.get(key)
            if padded is None:
                padded = self._elements[key] = self._padded(*key)
            known = self._sizes[value] = plain * padded // max(elements, 1)
        return known

    def padded(self, shape: Sequence[int], minor: Sequence[int], itemsize: int) -> int:
        """Elements with padding, where two of some extents are the minor ones.

        A tile has no more rows than the power of two that its dim needs, and than fill
        words of 32 bits: so lie all 696,646 arrays of float32, int32 and bfloat16 in 69
        programs (libtpu 0.0.50); some of bool lie in tiles of 32 rows.
        """
        most, columns = self.tile
        elements = math.prod(shape)
        if not elements or columns == 1:
            return elements
        least = max(1, _WORD // max(1, itemsize))
        return min(
            elements // (a * b) * _up(a, columns) * _up(b, _rows(b, least, most))
            for a, b in set(permutations(minor, 2))
        )

    def _padded(
        self,
        shape: tuple[int, ...],
        minor: tuple[int, ...] | None,
        is_given: bool,
        itemsize: int,
    ) -> int:
        """Elements with padding; minor: dims, if they are known.

        is_given: whether no convolution decides on them.
        """
        if len(shape) < 2:
            return _up(shape[0], self.tile[1]) if shape else 1
        image = None if is_given else self.images.get(shape)
        # Few images lie as they waste least: convolutions read parts of them instead.
        if minor is None and image is not None and shape[image[0]] >= self.tile[0]:
            minor = image
        if minor is None and not is_given:
            minor = self.stacks.get(shape)
        extents = shape if minor is None else [shape[d] for d in minor]
        return self.padded(shape, extents, itemsize)

    def note_shapes(self, program: Program) -> None:
        """Learn the shapes of what a program's convolutions and batched products make.

        Of convolutions also of what they read. A program's inputs come as they are.
        """
        self._given = frozenset(program.inputs)
        for op in program.walk():
            numbers: Any = op.params.get("dimension_numbers")
            if op.kind == "conv_general_dilated":
                specs = (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec)
                for atom, spec in zip(
                    (*op.operands[:2], *op.results), specs, strict=True
                ):
                    self.images.setdefault(atom.shape, (spec[0], spec[1]))
            elif op.kind == "dot_general":
                num_batch, shape = len(numbers[1][0]), op.results[0].shape
                if num_batch and len(shape) >= num_batch + 2:
                    self.stacks.setdefault(shape, tuple(range(num_batch, len(shape))))


def _rows(extent: int, least: int, most: int) -> int:
    """Rows of a tile over a dim."""
    return min(most, max(least, 1 << (extent - 1).bit_length()))


def _up(extent: int, tile: int) -> int:
    return -(-extent // tile) * tile
