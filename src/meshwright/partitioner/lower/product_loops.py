"""Product loops: parts of a product beside permutes of the parts that they need.

Wang et al., "Overlap Communication with Dependent Computation via Decomposition in Large
Deep Learning Models", ASPLOS 2023 (XLA: windowed or looped `CollectiveEinsum`). On n
devices an all-gather before a product becomes n products of the parts, and n - 1 permutes
of a part to a neighbour:

    before: y = all_gather(x); z = y @ w
    after:  z[me] = x @ w beside x' = permute(x); z[me + 1] = x' @ w beside ...

A reduce-scatter after a product becomes n products, each added to a sum that the
permutes carry around the ring. If n is a multiple of 4, parts travel both ways, so that
both directions of each link are used. The loops are unrolled completely.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshwright.partitioner.lower.product_dims import ProductDims
from meshwright.program.ir import Atom, Op, Value
from meshwright.program.ops import Builder

_BOTH_WAYS = 4
"""Parts travel both ways if the number of devices is a multiple of this, as in XLA's
`SpmdPartitioner` (`bidirectional_windowed_einsum`)."""

_PIECES = 2
"""Number of partial sums each way of a reduce-scatter loop: the products of one are
computed while the other is permuted (the unrolling by two of the paper).
"""

_NARROW = ("bfloat16", "float16")
"""Floats whose partial sums are added in float32, as a single product adds them."""


class Ring:
    """The devices along some axes as a ring; each has a part of an array.

    An offset counts devices ahead of this one.
    size: number of devices.
    is_both_ways: whether parts travel around the ring in both directions.
    me: this device's position.
    starts: first indices of parts along a dim, by (offset, size of a part).
    """

    def __init__(self, builder: Builder, axes: tuple[str, ...]) -> None:
        self.builder = builder
        self.axes = axes
        self.size = builder.mesh.size(axes)
        self.is_both_ways = self.size % _BOTH_WAYS == 0
        self.me = builder.axis_index(axes)
        self.starts: dict[tuple[int, int], Value] = {}

    def shift(self, x: Atom, by: int) -> Value:
        """The value `x` of the device `by` positions before this one, by a permute."""
        pairs = tuple((p, (p + by) % self.size) for p in range(self.size))
        return self.builder.permute(x, self.axes, pairs)

    def start(self, offset: int, part: int) -> Value:
        """First index, along a dim, of the part of the device at an offset."""
        key = offset % self.size, part
        if key not in self.starts:
            position = self.me
            if key[0]:
                added = self.builder.binary("add", self.me, key[0])
                position = self.builder.binary("rem", added, self.size)
            self.starts[key] = self.builder.binary("mul", position, part)
        return self.starts[key]

    def put(self, x: Atom, part: Atom, dim: int, offset: int) -> Value:
        """`x` with `part`, the part of the device at an offset, written along `dim`."""
        zero = self.builder.literal(0, "int32")
        starts: list[Atom] = [zero] * len(x.shape)
        starts[dim] = self.start(offset, part.shape[dim])
        return self.builder.emit(
            "dynamic_update_slice", (x, part, *starts), x.shape, x.dtype
        )

    def arrivals(self, x: Atom) -> Iterator[tuple[int, Atom]]:
        """(offset, part) of all devices, in the order in which permutes bring them.

        The permutes of later parts are written before a part is yielded, to overlap.
        One way, parts come from the next device; both ways, from either neighbour.
        """
        count = self.size
        back = count // 2 if self.is_both_ways else 0
        ways = {1: count - back - 1, -1: back}  # number of parts from each side
        held = {way: x for way, parts in ways.items() if parts}
        done = dict.fromkeys(held, 0)
        for way in held:
            held[way] = self.shift(x, -way)
        yield 0, x
        while held:
            for way in sorted(held):
                here = held[way]
                done[way] += 1
                if done[way] < ways[way]:
                    held[way] = self.shift(here, -way)
                else:
                    del held[way]
                yield way * done[way], here


class _GatheredProduct:
    """The result of one product, built up while parts of an operand arrive.

    side: the operand that arrives in parts, 0 or 1. dim: its dim that is divided.
    """

    def __init__(self, ring: Ring, op: Op, side: int, dim: int) -> None:
        self.ring, self.op, self.side = ring, op, side
        dims = ProductDims.of(op)
        self.partner = dims.partner(side, dim)
        self.result_dim = dims.result_dim(side, dim)
        self.dtype = op.results[0].dtype
        is_sum = self.result_dim is None and self.dtype in _NARROW
        self.sum_dtype = "float32" if is_sum else self.dtype
        self.total: Value | None = None

    def add(self, offset: int, chunk: Atom, part: int) -> None:
        """Multiply the part `chunk`, and add or write the product to the result."""
        builder, other = self.ring.builder, self.op.operands[1 - self.side]
        if self.partner is not None:
            other = builder.part_slice(other, self.partner, self.ring.axes, offset)
        operands = (chunk, other) if self.side == 0 else (other, chunk)
        made = self.op.results[0].shape
        if self.result_dim is None:
            value = product_part(builder, self.op, operands, made, self.sum_dtype)
            total = self.total
            self.total = value if total is None else builder.binary("add", total, value)
            return
        d = self.result_dim
        shape = (*made[:d], part, *made[d + 1 :])
        value = product_part(builder, self.op, operands, shape, self.dtype)
        total = self.total or builder.full(made, 0, self.dtype)
        self.total = self.ring.put(total, value, d, offset)

    def finish(self) -> Value:
        """The complete result, in the dtype of the original product."""
        assert self.total is not None, "a ring has at least one part"
        if self.sum_dtype == self.dtype:
            return self.total
        return self.ring.builder.convert(self.total, self.dtype)


def product_part(
    builder: Builder,
    op: Op,
    operands: Sequence[Atom],
    shape: tuple[int, ...],
    dtype: str,
) -> Value:
    """Emit the product of parts of an op's operands, of a given shape and dtype."""
    params = op.params
    if dtype != op.results[0].dtype:
        params = {**params, "preferred_element_type": np.dtype(dtype)}
    result = Value(shape, dtype)
    builder.ops.append(
        Op(op.kind, tuple(operands), (result,), params, (), op.source, op.primitive)
    )
    return result


def gathered_products(
    builder: Builder, gather: Op, products: Sequence[Op], is_read: bool
) -> tuple[Op, ...]:
    """The ops of a loop that replaces an all-gather and the products of its result.

    is_read: whether other ops read the gathered value, so that it is built, too.
    """
    (x,), (whole,) = gather.operands, gather.results
    dim, axes = gather.params["dim"], gather.params["axes"]
    assert isinstance(dim, int)
    assert isinstance(axes, tuple)
    ring = Ring(builder, axes)
    part = x.shape[dim]
    parts = [
        _GatheredProduct(ring, op, op.operands.index(whole), dim) for op in products
    ]
    gathered = builder.full(whole.shape, 0, whole.dtype) if is_read else None
    for offset, chunk in ring.arrivals(x):
        for each in parts:
            each.add(offset, chunk, part)
        if gathered is not None:
            gathered = ring.put(gathered, chunk, dim, offset)
    names = {each.finish(): each.op.results[0] for each in parts}
    if gathered is not None:
        names[gathered] = whole
    return _named(builder.ops, names)


def scattered_product(
    builder: Builder, op: Op, scatter: Op, dim: int
) -> tuple[Op, ...]:
    """The ops of a loop that replaces a product and the reduce-scatter of its result.

    The last op computes this device's part. dim: dim of the product that is scattered.
    """
    axes = scatter.params["axes"]
    assert isinstance(axes, tuple)
    ring = Ring(builder, axes)
    part = op.results[0].shape[dim] // ring.size
    pieces = _PIECES if part % _PIECES == 0 else 1
    sums = _ScatteredProduct(ring, op, dim, pieces).sums()
    if pieces > 1:
        builder.concatenate(sums, dim)
    return tuple(builder.ops)


@dataclass(frozen=True, slots=True)
class _ScatteredProduct:
    """A product whose result is reduce-scattered along `dim`, computed in parts.

    pieces: number of pieces of each device's part; each piece is summed separately.
    """

    ring: Ring
    op: Op
    dim: int
    pieces: int

    def product(self, offset: int, index: int) -> Value:
        """This device's addend of piece `index` of the part of another device.

        offset: the position of the other device, ahead of this one.
        """
        made, op = self.op.results[0], self.op
        extent = made.shape[self.dim] // (self.ring.size * self.pieces)
        shape = (*made.shape[: self.dim], extent, *made.shape[self.dim + 1 :])
        sliced = ProductDims.of(op).operand_dims(self.dim)
        operands = [
            self.ring.builder.part_slice(
                x, sliced[side], self.ring.axes, offset, (index, self.pieces)
            )
            if side in sliced
            else x
            for side, x in enumerate(op.operands)
        ]
        return product_part(self.ring.builder, op, operands, shape, made.dtype)

    def sums(self) -> list[Value]:
        """The sum, over devices, of each piece of this device's part.

        In each direction, a sum passes `steps` devices. Forward sums end at their
        device, backward ones at the device after it. While one sum is permuted, the
        products of the others are computed.
        """
        ring, add = self.ring, self.ring.builder.binary
        steps = ring.size // 2 if ring.is_both_ways else ring.size
        ways = (-1, 1) if ring.is_both_ways else (1,)
        every = [(way, index) for index in range(self.pieces) for way in ways]
        sums: dict[tuple[int, int], Value] = {}
        for step in range(steps):
            for way, index in every:
                offset = steps - 1 - step if way > 0 else step - steps
                if step == 0:
                    sums[way, index] = self.product(offset, index)
                else:
                    moved = ring.shift(sums[way, index], way)
                    sums[way, index] = add("add", moved, self.product(offset, index))
                if way < 0 and step == steps - 1:
                    sums[way, index] = ring.shift(sums[way, index], way)
        return [
            add("add", sums[1, i], sums[-1, i]) if ring.is_both_ways else sums[1, i]
            for i in range(self.pieces)
        ]


def _named(ops: Sequence[Op], names: Mapping[Value, Value]) -> tuple[Op, ...]:
    """The ops, each of one result, with results renamed as in `names`."""
    return tuple(
        replace(op, results=(names[op.results[0]],)) if op.results[0] in names else op
        for op in ops
    )
