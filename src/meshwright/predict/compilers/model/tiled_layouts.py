"""Bytes that values take in a device's memory: stored dtype, and padding to tiles.

XLA calls this a tiled layout: a TPU stores the two minor dims, which are the innermost
in memory, in tiles of 8 x 128 elements (`tile` of a chip). `Layouts.padded` counts the
padding. The matrix unit pads products to its own size; see
`predict/roofline/matrix_unit.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from types import MappingProxyType
from typing import Any, NamedTuple

from meshwright.predict.roofline.matrix_unit import padded_extent
from meshwright.program.ir import Program, Value, itemsize_bytes

_WORD = 4
"""Bytes of a memory word, into which rows of smaller elements are packed."""

_BFLOAT16_BYTES = 2

_Shape = tuple[int, ...]


class PhysicalShape(NamedTuple):
    """The shape in which a value is stored, if it differs from the value's own shape.

    minor: numbers of the two innermost dims in memory; `None` if they are unknown.
    """

    shape: _Shape
    minor: tuple[int, int] | None = None


class ShapeLayouts(NamedTuple):
    """Minor dims that convolutions and batched products require, by array shape.

    Minor dims are the innermost dims in memory, which are padded to tiles.
    inputs: inputs of the program; the caller decides on their layouts.
    images: batch and feature dim of each shape that a convolution reads or computes.
    batched_products: for each shape of a batched product's result, all dims but the
        batch dims; two of them are minor.
    """

    inputs: frozenset[Value] = frozenset()
    images: Mapping[_Shape, tuple[int, int]] = MappingProxyType({})
    batched_products: Mapping[_Shape, _Shape] = MappingProxyType({})


_NO_SHAPES = ShapeLayouts()


def shape_layouts(program: Program) -> ShapeLayouts:
    """The minor dims that a program's convolutions and batched products require."""
    images: dict[_Shape, tuple[int, int]] = {}
    batched_products: dict[_Shape, _Shape] = {}
    for op in program.walk():
        numbers: Any = op.params.get("dimension_numbers")
        if op.kind == "conv_general_dilated":
            specs = (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec)
            for atom, spec in zip((*op.operands[:2], *op.results), specs, strict=True):
                images.setdefault(atom.shape, (spec[0], spec[1]))
        elif op.kind == "dot_general":
            num_batch, shape = len(numbers[1][0]), op.results[0].shape
            if num_batch and len(shape) >= num_batch + 2:
                batched_products.setdefault(shape, tuple(range(num_batch, len(shape))))
                for atom, batch in zip(op.operands, numbers[1], strict=True):
                    free = tuple(d for d in range(len(atom.shape)) if d not in batch)
                    if len(free) >= 2:
                        batched_products.setdefault(atom.shape, free)
    return ShapeLayouts(frozenset(program.inputs), images, batched_products)


_Memo = dict[object, int]
"""Cache of computed sizes: bytes of a value, and padded elements of a shape."""


@dataclass(frozen=True, slots=True, eq=False)
class Layouts:
    """Storage of a device program's values: dtypes, padding, and memory spaces.

    tile: rows and columns to which the two minor (innermost) dims are padded. The
        compiler chooses these dims; they are taken to be the pair with the least
        padding.
    bfloat16: float32 values that are stored as bfloat16.
    recomputed: inputs of bodies that are never in memory, since readers compute them.
    slices: values that are part of another buffer, such as one iteration's slice of
        what a loop scans.
    on_chip: values that are in scratch memory throughout their live ranges.
    unpadded: values that are stored without padding.
    shapes: minor dims that ops require, by shape.
    physical: for values that are stored in another shape, that shape.
    """

    tile: tuple[int, int] = (1, 1)
    bfloat16: frozenset[Value] = frozenset()
    recomputed: frozenset[Value] = frozenset()
    slices: frozenset[Value] = frozenset()
    on_chip: frozenset[Value] = frozenset()
    unpadded: frozenset[Value] = frozenset()
    shapes: ShapeLayouts = _NO_SHAPES
    physical: Mapping[Value, PhysicalShape] = MappingProxyType({})
    _memo: _Memo = field(default_factory=_Memo, repr=False)

    def changed(self, **fields: Any) -> Layouts:
        """A copy with other fields, and with an empty cache of sizes.

        A change of only `on_chip` or `unpadded` needs no new cache, since `size` tests
        these first; then `dataclasses.replace` will do.
        """
        return replace(self, _memo={}, **fields)

    def num_bytes(self, value: Value) -> int:
        """Bytes of a value's elements without padding, which kernels never read."""
        return self.itemsize(value) * math.prod(value.shape)

    def itemsize(self, value: Value) -> int:
        """Bytes of one stored element of a value; 0 if it is never in memory."""
        if value in self.recomputed:
            return 0
        return self._element_bytes(value)

    def sent_bytes(self, value: Value) -> int:
        """Bytes of a value's elements in a collective, which has to have them stored."""
        return self._element_bytes(value) * math.prod(value.shape)

    def _element_bytes(self, value: Value) -> int:
        is_rounded = value in self.bfloat16
        return _BFLOAT16_BYTES if is_rounded else itemsize_bytes(value.dtype)

    def size(self, value: Value) -> int:
        """Bytes that a value takes in main memory, padding included.

        It is 0 for values in scratch memory and for slices of another buffer.
        """
        if value in self.slices or value in self.on_chip:
            return 0
        if value in self.unpadded:
            return self.num_bytes(value)
        known = self._memo.get(value)
        if known is None:
            known = self._memo[value] = self._padded_bytes(value)
        return known

    def _padded_bytes(self, value: Value) -> int:
        elements = math.prod(value.shape)
        itemsize = self.itemsize(value)
        physical = self.physical.get(value)
        shape, minor = physical or (value.shape, None)
        is_fixed = physical is not None or value in self.shapes.inputs
        key = shape, minor, is_fixed, itemsize
        padded = self._memo.get(key)
        if padded is None:
            padded = self._memo[key] = self._padded_elements(*key)
        return itemsize * elements * padded // max(elements, 1)

    def padded(self, shape: Sequence[int], minor: Sequence[int], itemsize: int) -> int:
        """Elements of an array with padding, for the least padded pair of minor dims.

        minor: extents of the dims among which the two minor dims are chosen. A tile has
            at most as many rows as the next power of two of its dim, and at least as
            many as fill words of 32 bits: all 696,646 arrays of float32, int32 and
            bfloat16 in 69 programs are stored so (libtpu 0.0.50); some of bool have
            tiles of 32 rows.
        """
        most, columns = self.tile
        elements = math.prod(shape)
        if not elements or columns == 1:
            return elements
        least = max(1, _WORD // max(1, itemsize))
        found: list[int] = []
        for a, b in set(permutations(minor, 2)):
            rows = min(most, max(least, 1 << (b - 1).bit_length()))
            padded = padded_extent(a, columns) * padded_extent(b, rows)
            found.append(elements // (a * b) * padded)
        return min(found)

    def _padded_elements(
        self, shape: _Shape, minor: _Shape | None, is_fixed: bool, itemsize: int
    ) -> int:
        """Elements of a stored array with padding.

        minor: numbers of the two minor dims, or `None` to derive them from the shape.
        is_fixed: whether the minor dims do not depend on convolutions and batched
            products.
        """
        if len(shape) < 2:
            return padded_extent(shape[0], self.tile[1]) if shape else 1
        image = None if is_fixed else self.shapes.images.get(shape)
        # Images of few features, or of small batches, of which convolutions read parts,
        # get the least padding.
        if minor is None and image is not None:
            is_narrow = min(shape[d] for d in image) < self.tile[0]
            minor = None if is_narrow else image
        if minor is None and not is_fixed:
            minor = self.shapes.batched_products.get(shape)
        extents = shape if minor is None else [shape[d] for d in minor]
        return self.padded(shape, extents, itemsize)
