"""What is computed and read where a device takes its part of a whole value."""

import pytest

from meshwright.ir import Op, Program, Value
from meshwright.simulate.fusion import fuse

PART = {"axes": ("data",), "dim": 0}


def value(*shape):
    return Value(shape, "float32")


def unit_of(x, ops, output):
    """The one unit that a program comes to."""
    (unit,) = fuse(Program((x,), tuple(ops), (output,)))
    return unit


def test_only_the_part_is_read_and_computed():
    """cos of a quarter of 8 numbers, and 2 of the 8 are read."""
    x, y, part, z = value(8), value(8), value(2), value(2)
    ops = [
        Op("neg", (x,), (y,)),
        Op("all_slice", (y,), (part,), PART),
        Op("neg", (part,), (z,)),
    ]
    unit = unit_of(x, ops, z)
    assert unit.shares == {x: 0.25}
    assert unit.work.flops == 2 + 2


def test_what_another_reader_needs_whole_is_whole():
    x, part, whole, z = value(8), value(2), value(8), value(8)
    ops = [
        Op("all_slice", (x,), (part,), PART),
        Op("broadcast_in_dim", (part,), (whole,), {"shape": (8,)}),
        Op("add", (x, whole), (z,)),
    ]
    assert unit_of(x, ops, z).shares == {}


def test_what_is_repeated_before_the_part_is_whole():
    """A part of the repetition needs all of what was repeated."""
    x, wide, part, z = value(4), value(8, 4), value(2, 4), value(2, 4)
    ops = [
        Op("broadcast_in_dim", (x,), (wide,), {"shape": (8, 4)}),
        Op("all_slice", (wide,), (part,), PART),
        Op("neg", (part,), (z,)),
    ]
    assert unit_of(x, ops, z).shares == {}


@pytest.mark.parametrize("shape", [(0,), (0, 8)])
def test_nothing_of_nothing_is_read(shape):
    x, part, z = value(*shape), value(*shape), value(*shape)
    ops = [Op("all_slice", (x,), (part,), PART), Op("neg", (part,), (z,))]
    assert unit_of(x, ops, z).work.flops == 0
