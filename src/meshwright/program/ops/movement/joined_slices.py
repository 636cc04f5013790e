"""Arrays joined from slices of others along one dim.

Slices, paddings, concatenations and rolls are all of this form: each interval of the result
is an interval of an operand, or a fill value. `exchange.py` joins parts of arrays that are
split over devices.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.program.ir import Atom, Literal, Value
from meshwright.program.rules.builder import Builder

ZERO = Literal(0, "float32")
"""The fill value of gaps if no other is given, whatever the dtype."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A slice of an operand, and its place in the result.

    operand: the operand's number. start: position of the first element in the operand.
    at: position of the first element in the result. length: number of elements.
    """

    operand: int
    start: int
    at: int
    length: int


@dataclass(frozen=True, slots=True)
class Join:
    """An array joined from slices of operands along one dim; gaps hold a fill value.

    dim: the dim. size: the result's extent, on all devices together.
    extents: the operands' extents, on all devices together.
    pieces: the slices; none overlap in the result.
    fill: the value of gaps.
    """

    dim: int
    size: int
    extents: tuple[int, ...]
    pieces: tuple[Piece, ...]
    fill: Atom = ZERO

    @property
    def has_gap(self) -> bool:
        """Whether some element of the result is the fill value."""
        return sum(piece.length for piece in self.pieces) < self.size

    def source(self, position: int) -> tuple[int, int] | None:
        """The operand and the position there of one element; `None` in a gap."""
        for piece in self.pieces:
            if piece.at <= position < piece.at + piece.length:
                return piece.operand, piece.start + position - piece.at
        return None


def join_whole(builder: Builder, operands: Sequence[Value], join: Join) -> Value:
    """The joined array, of operands that this device has completely."""
    parts: list[Value] = []
    position = 0
    for piece in sorted(join.pieces, key=lambda piece: piece.at):
        if piece.at > position:
            parts.append(_gap(builder, operands[0], join, piece.at - position))
        parts.append(
            slice_of(
                builder, operands[piece.operand], join.dim, piece.start, piece.length
            )
        )
        position = piece.at + piece.length
    if position < join.size or not parts:
        parts.append(_gap(builder, operands[0], join, join.size - position))
    return parts[0] if len(parts) == 1 else builder.concatenate(parts, join.dim)


def own_elements(
    builder: Builder, x: Value, join: Join, axes: tuple[str, ...]
) -> Value:
    """The joined array with zeros for the elements that other devices have.

    x: this device's part of the only operand, split along `axes`. The sum over devices
        is the joined array.
    """
    (piece,), (extent,) = join.pieces, join.extents
    size = extent // builder.mesh.size(axes)
    here = builder.axis_index(axes)
    parts: list[Value] = []
    position = piece.start
    while position < piece.start + piece.length:
        device, start = divmod(position, size)
        length = min(size - start, piece.start + piece.length - position)
        mine = slice_of(builder, x, join.dim, start, length)
        zeros = builder.full(mine.shape, 0, x.dtype)
        parts.append(builder.select(builder.compare("eq", here, device), zeros, mine))
        position += length
    return parts[0] if len(parts) == 1 else builder.concatenate(parts, join.dim)


def is_zero(atom: Atom) -> bool:
    """Whether a fill value is the constant zero."""
    return isinstance(atom, Literal) and bool(atom.value == 0)


def slice_of(builder: Builder, x: Value, dim: int, start: int, length: int) -> Value:
    """`length` elements of `x` along a dim; `x` itself if that is all of it."""
    if (start, length) == (0, x.shape[dim]):
        return x
    return builder.slice(x, dim, start, start + length)


def _gap(builder: Builder, like: Value, join: Join, length: int) -> Value:
    shape = (*like.shape[: join.dim], length, *like.shape[join.dim + 1 :])
    return filled(builder, shape, join.fill, like.dtype)


def filled(builder: Builder, shape: tuple[int, ...], fill: Atom, dtype: str) -> Value:
    """An array of one value, which is a scalar or a constant."""
    if isinstance(fill, Literal):
        return builder.full(shape, fill.value, dtype)
    return builder.broadcast(fill, shape, ())
