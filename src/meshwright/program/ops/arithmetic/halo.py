"""Halo exchange: windows that slide over a dim which is split over devices.

Input part i and output part i correspond if both dims are split into parts that cover the
same range of positions. Each input part then lacks some elements of its neighbours, its
halo:

    input    |  0 1 2 3  |  4 5 6 7  |       window 3, padding (1, 1): left 1, right 1
    needed   |. 0 1 2 3 4|3 4 5 6 7 .|       `.` is the global padding, zero
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from meshwright.program.ir import Atom, Op, Value
from meshwright.program.rules.builder import Builder


@dataclass(frozen=True, slots=True)
class Sliding:
    """One dim of a windowed op, in the terms of `lax.conv_general_dilated`.

    size, window, out: extents of the input, of the window and of the output.
    padding: elements added before and after the (dilated) input; may be negative.
    base, dilation: spacing of the input's elements and of the window's elements.
    """

    size: int
    window: int
    out: int
    stride: int = 1
    padding: tuple[int, int] = (0, 0)
    base: int = 1
    dilation: int = 1


@dataclass(frozen=True, slots=True)
class Halo:
    """The elements that a device needs from its neighbours if one dim is split.

    The input's dim is split together with a partner dim: that of the output or of the
    window.
    left, right: number of input elements needed from the previous and the next device.
    padding: padding that the op adds to a device's part with its halo.
    factor: extent of the factor that input and partner share.
    minor, partner_minor: extents of factors that complete the input's and the partner's
        dim and are not split.
    is_plain: whether each part is the same op on smaller shapes, without an exchange.
    """

    left: int
    right: int
    padding: tuple[int, int]
    factor: int
    minor: int
    partner_minor: int
    is_plain: bool

    @property
    def least(self) -> int:
        """The smallest part of the factor that a device may have.

        A part must be so large that one neighbour has all of the halo.
        """
        return max(1, math.ceil(max(self.left, self.right) / self.minor))

    @property
    def moved(self) -> int:
        """The number of elements along the dim that each device receives."""
        return self.left + self.right


def output_halo(dim: Sliding) -> Halo | None:
    """The halo if input and output are split together.

    `None` if parts of the input and of the output do not correspond.
    """
    reach = (dim.window - 1) * dim.dilation
    return _aligned(dim, dim.out, dim.stride, reach)


def window_halo(dim: Sliding) -> Halo | None:
    """The halo if input and window are split together, so that the output is partial.

    `None` if parts of the input and of the window do not correspond.
    """
    reach = (dim.out - 1) * dim.stride
    return _aligned(dim, dim.window, dim.dilation, reach)


def _aligned(dim: Sliding, partner: int, step: int, reach: int) -> Halo | None:
    """The halo of an input dim split together with a partner dim (output or window).

    Element j of the partner meets the dilated input at positions j * step - low up to j
    * step - low + reach. A part of n input elements and m partner elements, which both
    cover `base * n = step * m` positions, meets positions from -low up to `base * n -
    step - low + reach`, counted from the part's first element.
    step: distance of the partner's elements, in positions of the dilated input.
    """
    if min(dim.size, dim.window, dim.out) < 1 or dim.size * dim.base != partner * step:
        return None
    low, _ = dim.padding
    shared = math.gcd(dim.base, step)
    left = max(0, low // dim.base)
    right = max(0, (reach - step - low) // dim.base + 1)
    low -= left * dim.base
    high = reach - step - low - (left + right - 1) * dim.base
    high = 0 if -dim.stride < high < 0 else high  # too few for one more output
    minor = step // shared
    return Halo(
        left,
        right,
        (low, high),
        dim.size // minor,
        minor,
        dim.base // shared,
        is_plain=left == right == 0 and (low, high) == dim.padding,
    )


@lru_cache(maxsize=4096)  # a step asks for each convolution some five times
def unpadded_pairs(dim: Sliding) -> int:
    """Number of (window element, output position) pairs that meet a real input element.

    Pairs that meet padding, or a zero of the input's dilation, do not count.
    """
    span = (dim.size - 1) * dim.base
    low, _ = dim.padding
    offsets = (k * dim.dilation - low for k in range(dim.window))
    return sum(_positions(dim, offset, span) for offset in offsets)


def _positions(dim: Sliding, offset: int, span: int) -> int:
    """Number of output positions whose window element meets a real input element.

    For position o, that element lies at o * stride + offset, which must be in 0..span
    and a multiple of `base`.
    """
    first = max(0, -(offset // dim.stride))
    last = min(dim.out - 1, (span - offset) // dim.stride)
    if last < first:
        return 0
    if dim.base == 1:
        return last - first + 1
    # o * stride + offset = 0 (mod base) repeats with period base / gcd(stride, base)
    period = dim.base // math.gcd(dim.stride, dim.base)
    for start in range(first, min(first + period, last + 1)):
        if (start * dim.stride + offset) % dim.base == 0:
            return (last - start) // period + 1
    return 0


def paddings_of(op: Op) -> list[tuple[int, int]]:
    """The op's padding before and after each dim, in elements."""
    return [(low, high) for low, high in op.params["padding"]]


def extend(
    builder: Builder,
    x: Value,
    dim: int,
    axes: tuple[str, ...],
    halo: Halo,
    fill: Atom | None = None,
) -> Value:
    """`x` joined along `dim` with the edges that its neighbour devices send.

    fill: value in place of an edge on the first and last device, which have only one
        neighbour; zeros by default.
    """
    extent = x.shape[dim]
    pieces = [x]
    if halo.left:
        edge = builder.slice(x, dim, extent - halo.left, extent)
        pieces.insert(0, edge_from_neighbour(builder, edge, axes, fill, step=1))
    if halo.right:
        edge = builder.slice(x, dim, 0, halo.right)
        pieces.append(edge_from_neighbour(builder, edge, axes, fill, step=-1))
    return builder.concatenate(pieces, dim) if len(pieces) > 1 else x


def edge_from_neighbour(
    builder: Builder,
    edge: Value,
    axes: tuple[str, ...],
    fill: Atom | None,
    step: int,
) -> Value:
    """The edge that a neighbour device along `axes` sends.

    The outermost device has no neighbour on that side, and gets `fill` instead.
    step: 1 if the edge comes from the device before this one, -1 if from the next one.
    """
    num = builder.mesh.size(axes)
    up = tuple((i, i + 1) for i in range(num - 1))
    pairs, outermost = (up, 0) if step > 0 else (tuple((b, a) for a, b in up), num - 1)
    moved = builder.permute(edge, axes, pairs)
    if fill is None:
        return moved
    is_outermost = builder.compare("eq", builder.axis_index(axes), outermost)
    return builder.select(is_outermost, moved, builder.broadcast(fill, edge.shape, ()))


def crop(
    builder: Builder, x: Value, dim: int, halo: Halo
) -> tuple[Value, tuple[int, int]]:
    """`x` cropped by the negative padding, and the padding that remains."""
    low, high = halo.padding
    start, stop = max(0, -low), x.shape[dim] - max(0, -high)
    if (start, stop) != (0, x.shape[dim]):
        x = builder.slice(x, dim, start, stop)
    return x, (max(0, low), max(0, high))
