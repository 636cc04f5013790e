"""Work and reads of fusions that slice a part out of a value."""

import pytest

from meshwright.program.ir import Op, Program, Value, Wire
from tests.predict.compilers.compiled import fusions_of

PART = {"axes": ("data",), "dim": 0}


def value(*shape):
    return Value(shape, "float32")


def unit_of(x, ops, output):
    """The only fusion of a program."""
    (fusion,) = fusions_of(Program((x,), tuple(ops), (output,)))
    return fusion


def test_only_the_devices_slice_is_read_and_computed():
    """The device reads 2 of 8 numbers, and computes their cosine."""
    x, y, part, z = value(8), value(8), value(2), value(2)
    ops = [
        Op("neg", (x,), (y,)),
        Op("all_slice", (y,), (part,), PART),
        Op("neg", (part,), (z,)),
    ]
    fusion = unit_of(x, ops, z)
    assert fusion.shares == {x: 0.25}
    assert fusion.work.flops == 2 + 2


def test_of_a_cache_of_all_layers_only_the_slice_of_one_is_read():
    cache, layer, part, z = value(16, 8), Value((), "int32"), value(1, 8), value(1, 8)
    ops = [
        Op("dynamic_slice", (cache, layer, layer), (part,), {"slice_sizes": (1, 8)}),
        Op("neg", (part,), (z,)),
    ]
    (fusion,) = fusions_of(Program((cache, layer), tuple(ops), (z,)))
    assert fusion.shares == {cache: 1 / 16}


def test_a_value_that_another_consumer_needs_whole_is_computed_whole():
    x, part, whole, z = value(8), value(2), value(8), value(8)
    ops = [
        Op("all_slice", (x,), (part,), PART),
        Op("broadcast_in_dim", (part,), (whole,), {"shape": (8,)}),
        Op("add", (x, whole), (z,)),
    ]
    assert unit_of(x, ops, z).shares == {}


def test_a_value_that_is_broadcast_before_the_slice_is_read_whole():
    """A slice of a broadcast needs the whole operand."""
    x, wide, part, z = value(4), value(8, 4), value(2, 4), value(2, 4)
    ops = [
        Op("broadcast_in_dim", (x,), (wide,), {"shape": (8, 4)}),
        Op("all_slice", (wide,), (part,), PART),
        Op("neg", (part,), (z,)),
    ]
    assert unit_of(x, ops, z).shares == {}


@pytest.mark.parametrize("shape", [(0,), (0, 8)])
def test_a_slice_of_an_empty_value_reads_nothing(shape):
    x, part, z = value(*shape), value(*shape), value(*shape)
    ops = [Op("all_slice", (x,), (part,), PART), Op("neg", (part,), (z,))]
    assert unit_of(x, ops, z).work.flops == 0


def test_a_loop_body_recomputes_a_broadcast_unless_it_slices_it_by_device():
    """A mask that each iteration slices is made whole before the loop, once."""
    x, wide = value(8), value(64, 8)
    for rows, stored in ((64, 0), (16, 1)):
        carry, result, inner = value(rows, 8), value(rows, 8), value(rows, 8)
        mask, part = value(64, 8), value(rows, 8)
        cut = [Op("all_slice", (mask,), (part,), PART)] if rows < 64 else []
        last = Op("mul", (inner, part if cut else mask), (made := value(rows, 8),))
        body = Program((mask, inner), (*cut, last), (made,))
        wires = (
            Wire(operand=0, inputs=((0, 0),)),
            Wire(operand=1, inputs=((0, 1),), outputs=((0, 0),), result=0),
        )
        ops = (
            Op("broadcast_in_dim", (x,), (wide,), {"shape": (64, 8)}),
            Op("scan", (wide, carry), (result,), {"length": 3}, (body,), wires=wires),
        )
        fusions = fusions_of(Program((x, carry), ops, (result,)))
        assert sum(wide in fusion.writes for fusion in fusions) == stored


def sliced(x, start, part):
    params = {"start_indices": (start,), "limit_indices": (start + 2,), "strides": None}
    return Op("slice", (x,), (part,), params)


def test_two_slices_of_a_value_are_read_apart_and_one_slice_once():
    x, y, left, right, z = (value(8), value(8), *(value(2) for _ in range(3)))
    negated = Op("neg", (x,), (y,))
    two = [sliced(y, 0, left), sliced(y, 6, right), Op("add", (left, right), (z,))]
    assert unit_of(x, [negated, *two], z).shares == {x: 0.5}
    one = [sliced(y, 0, left), Op("mul", (left, left), (z,))]
    assert unit_of(x, [negated, *one], z).shares == {x: 0.25}
