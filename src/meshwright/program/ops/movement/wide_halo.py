"""Joins of one array whose parts begin at other places on each device, by a wide halo.

Of 64 elements over 8 devices, the slice from 4 to 60 has 7 on each: device 0 lacks 3 of
the next device's, device 7 lacks 3 of the previous one's. Each device fetches as many
elements on either side as the one that lacks most, then takes its own at a position that
it computes.
"""

from collections.abc import Iterator

from meshwright.program.ir import Atom, Literal, Value
from meshwright.program.ops.movement.joined_slices import Join, filled, slice_of
from meshwright.program.rules.builder import Builder


def num_halo(join: Join, num: int) -> int | None:
    """The number of elements that each device fetches; `None` for several pieces."""
    widths = _widths(join, num)
    return None if widths is None else sum(widths)


def join_by_halo(
    builder: Builder, x: Value, join: Join, axes: tuple[str, ...]
) -> Value:
    """This device's part of the joined array, of its part `x` and its neighbours'."""
    num = builder.mesh.size(axes)
    widths = _widths(join, num)
    assert widths is not None
    left, right = widths
    part, size = x.shape[join.dim], join.size // num
    (piece,) = join.pieces
    pieces = [*_fetched(builder, x, join.dim, axes, left, 1)]
    pieces = [*reversed(pieces), x, *_fetched(builder, x, join.dim, axes, right, -1)]
    # Of device i's pieces, the element at `first + i * step` is its first of the result.
    first, step = left + piece.start - piece.at, size - part
    starts = (first, first + (num - 1) * step)
    before = max(0, -min(starts))
    after = max(0, max(starts) + size - left - part - right)
    zero = Literal(0, x.dtype)
    for margin, place in ((before, 0), (after, len(pieces) + 1)):
        if margin:
            shape = (*x.shape[: join.dim], margin, *x.shape[join.dim + 1 :])
            pieces.insert(place, filled(builder, shape, zero, x.dtype))
    whole = builder.concatenate(pieces, join.dim) if len(pieces) > 1 else x
    here = builder.axis_index(axes)
    start = builder.binary("add", builder.binary("mul", here, step), first + before)
    at: list[Atom] = [Literal(0, "int32")] * len(x.shape)
    at[join.dim] = start
    shape = (*x.shape[: join.dim], size, *x.shape[join.dim + 1 :])
    found = builder.emit("dynamic_slice", (whole, *at), shape, x.dtype, sizes=shape)
    if not join.has_gap:
        return found
    offset = builder.broadcast(builder.binary("mul", here, size), (size,), ())
    place = builder.binary("add", builder.iota((size,), 0), offset)
    inside = builder.binary(
        "and",
        builder.compare("ge", place, piece.at),
        builder.compare("lt", place, piece.at + piece.length),
    )
    mask = builder.broadcast(inside, shape, (join.dim,))
    return builder.select(mask, filled(builder, shape, join.fill, x.dtype), found)


def _widths(join: Join, num: int) -> tuple[int, int] | None:
    """The most elements that a device lacks before its part, and after it."""
    if len(join.pieces) != 1:
        return None
    (piece,), part, size = join.pieces, join.extents[0] // num, join.size // num
    left = right = 0
    for device in range(num):
        begin = piece.start - piece.at + device * size
        low = max(begin, piece.start)
        high = min(begin + size, piece.start + piece.length)
        if low < high:
            left = max(left, device * part - low)
            right = max(right, high - (device + 1) * part)
    return left, right


def _fetched(
    builder: Builder, x: Value, dim: int, axes: tuple[str, ...], width: int, step: int
) -> Iterator[Value]:
    """The elements beside this device's part, in one piece per neighbour, nearest first.

    step: 1 for those before its part, -1 for those after it.
    """
    num, part, distance = builder.mesh.size(axes), x.shape[dim], 0
    while width > 0:
        distance += 1
        length = min(width, part)
        start = part - length if step > 0 else 0
        edge = slice_of(builder, x, dim, start, length)
        pairs = tuple(
            (i, i + step * distance)
            for i in range(num)
            if 0 <= i + step * distance < num
        )
        yield builder.permute(edge, axes, pairs)
        width -= length
