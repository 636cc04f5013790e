"""Intervals of devices' parts of a join, and the devices that have them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from meshwright.program.ir import Value
from meshwright.program.ops.movement.joined_slices import Join, Piece
from meshwright.program.rules.builder import Builder

MAX_RUNS = 16
"""The largest number of intervals of a device's part that are joined one by one."""


@dataclass(frozen=True, slots=True)
class IntervalOrigin:
    """The place from which devices read an interval: an operand, and a distance.

    distance: from a position in a device's part of the result to the position in the
        part of the operand that the sender has.
    is_whole: whether every device has all of the operand.
    """

    operand: int
    distance: int
    is_whole: bool


@dataclass(slots=True)
class Run:
    """An interval of every device's part of the result.

    start, stop: its bounds in the part.
    senders: for each origin, the sending device of each device that reads it. Devices
        of no origin have the fill value.
    """

    start: int
    stop: int
    senders: dict[IntervalOrigin, dict[int, int]]


def runs_of(join: Join, num: int, is_cut: Sequence[bool]) -> list[Run] | None:
    """The intervals of all devices' parts; `None` if there are too many of them."""
    size = join.size // num
    bounds = {0, size}
    for piece in join.pieces:
        for place in _bounds_of(piece, join, num, is_cut[piece.operand]):
            bounds.add(place % size)
            if len(bounds) > 4 * MAX_RUNS:
                return None
    ordered = sorted(bounds)
    runs: list[Run] = []
    for start, stop in pairwise(ordered):
        senders = _senders(join, num, is_cut, start)
        if runs and runs[-1].senders == senders:
            runs[-1].stop = stop
        else:
            runs.append(Run(start, stop, senders))
    num_reads = sum(len(run.senders) for run in runs)
    return runs if num_reads <= MAX_RUNS else None


def _bounds_of(piece: Piece, join: Join, num: int, is_cut: bool) -> Iterator[int]:
    """Positions in the result where a piece, or a device's part of its operand, begins."""
    yield piece.at
    yield piece.at + piece.length
    if is_cut:
        size = join.extents[piece.operand] // num
        first = (piece.start // size + 1) * size
        for edge in range(first, piece.start + piece.length, size):
            yield piece.at + edge - piece.start


def _senders(
    join: Join, num: int, is_cut: Sequence[bool], start: int
) -> dict[IntervalOrigin, dict[int, int]]:
    """The device that sends the elements at `start` of a part to each other, by origin."""
    found: dict[IntervalOrigin, dict[int, int]] = {}
    for device in range(num):
        source = join.source(device * (join.size // num) + start)
        if source is None:
            continue
        operand, position = source
        sender = device
        if is_cut[operand]:
            sender, position = divmod(position, join.extents[operand] // num)
        origin = IntervalOrigin(operand, position - start, not is_cut[operand])
        found.setdefault(origin, {})[device] = sender
    return found


def is_among(builder: Builder, devices: set[int], axes: tuple[str, ...]) -> Value:
    """Whether this device's position along `axes` is one of these, as a bool."""
    num = builder.mesh.size(axes)
    here = builder.axis_index(axes)
    if 2 * len(devices) > num:
        others = set(range(num)) - devices
        return builder.unary("not", _is_one_of(builder, here, others))
    return _is_one_of(builder, here, devices)


def _is_one_of(builder: Builder, here: Value, devices: set[int]) -> Value:
    ordered = sorted(devices)
    steps = {b - a for a, b in pairwise(ordered)}
    if len(steps) == 1 and len(ordered) > 2:
        (step,), low, high = steps, ordered[0], ordered[-1]
        inside = builder.binary(
            "and", builder.compare("ge", here, low), builder.compare("le", here, high)
        )
        if step == 1:
            return inside
        rest = builder.binary("rem", builder.binary("sub", here, low), step)
        return builder.binary("and", inside, builder.compare("eq", rest, 0))
    found = builder.compare("eq", here, ordered[0]) if ordered else None
    for device in ordered[1:]:
        assert found is not None
        found = builder.binary("or", found, builder.compare("eq", here, device))
    assert found is not None
    return found
