"""Axes in units: together they are the axis, and each reshape finds what it can take."""

from __future__ import annotations

import itertools
import math
import operator

import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshwright as mw
from meshwright.errors import MeshError
from meshwright.partitioner.propagate import Graph, user_axes
from meshwright.partitioner.propagate.sub_axes import show_axis, split_axes, whole_axes
from meshwright.program.capture import capture
from meshwright.program.ir import Sharding
from tests.partitioner.propagate.programs import f32

EXTENTS = st.sampled_from([2, 3, 4, 6, 8, 12])
SIZES = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16])


def reshaped(*shapes: tuple[int, ...]) -> Graph:
    """A program that reads one flat array in each of the shapes."""

    def fn(*xs):
        return [x.reshape(s) for x, s in zip(xs, shapes, strict=True)]

    return Graph(capture(fn, [f32(math.prod(s)) for s in shapes]).program)


def split(graph: Graph, size: int, **options) -> tuple[int, ...]:
    """The sizes of the units of an axis."""
    mesh, units = split_axes(graph, mw.Mesh({"m": size}), **options)
    return tuple(mesh.size(u) for u in units["m"])


def test_an_axis_cannot_be_called_like_a_unit():
    with pytest.raises(MeshError, match="'m:0' holds ':'"):
        split_axes(reshaped((4, 2)), mw.Mesh({"m:0": 2}))


@settings(max_examples=50)
@given(st.lists(st.tuples(EXTENTS, EXTENTS), max_size=3), SIZES, SIZES)
def test_the_units_of_an_axis_multiply_to_its_size(shapes, size, other):
    mesh, units = split_axes(reshaped(*shapes), mw.Mesh({"m": size, "n": other}))
    assert list(units) == ["m", "n"]
    assert mesh.axes == (*units["m"], *units["n"])
    assert (mesh.size(units["m"]), mesh.size(units["n"])) == (size, other)
    assert all(mesh.size(u) > 1 for u in mesh.axes if u not in ("m", "n"))


@settings(max_examples=50)
@given(EXTENTS, EXTENTS, SIZES)
def test_the_first_units_fill_the_major_part_as_far_as_they_can(major, minor, size):
    sizes = split(reshaped((major, minor)), size)
    filled = itertools.accumulate(sizes, operator.mul, initial=1)
    assert math.gcd(major, size) in list(filled)


def test_an_axis_of_eight_over_four_heads_is_one_of_four_and_one_of_two():
    graph = reshaped((4, 64))
    assert split(graph, 8) == (4, 2)
    mesh, units = split_axes(graph, mw.Mesh({"m": 8}))
    assert units == {"m": ("m:0", "m:1")}
    assert str(mesh) == "m:0=4,m:1=2"


@pytest.mark.parametrize("size", [2, 4])
def test_an_axis_that_fits_is_its_own_unit(size):
    assert split_axes(reshaped((4, 8)), mw.Mesh({"m": size}))[1] == {"m": ("m",)}


def test_an_axis_to_be_kept_is_its_own_unit():
    assert split(reshaped((4, 8)), 8, kept=["m"]) == (8,)


def test_the_devices_of_the_mesh_stay():
    devices = tuple(jax.devices()[7::-1])
    mesh = mw.Mesh({"m": 8}, devices=devices)
    assert split_axes(reshaped((4, 8)), mesh)[0].devices == devices


UNITS = {"m": ("m:0", "m:1"), "n": ("n",), "k": ("k:0", "k:1", "k:2")}
ALL = tuple(u for units in UNITS.values() for u in units)


@given(st.permutations(sorted(UNITS)), st.integers(0, 3), st.integers(0, 3))
def test_whole_axes_undoes_the_split(order, first, second):
    low, high = sorted((first, second))
    wanted = Sharding((tuple(order[:low]), tuple(order[low:high])))
    dims = tuple(tuple(u for a in axes for u in UNITS[a]) for axes in wanted.dims)
    assert whole_axes(Sharding(dims), ALL) == wanted
    assert tuple(user_axes(cut) for cut in dims) == wanted.dims


@pytest.mark.parametrize(
    "dims",
    [
        (("m:0",), ()),
        (("m:1",), ()),
        (("m:1", "m:0"), ()),
        (("m:0",), ("m:1",)),
        (("m:0", "n", "m:1"), ()),
    ],
    ids=["major", "minor", "turned", "over two dims", "parted"],
)
def test_part_of_an_axis_is_no_axis(dims):
    assert whole_axes(Sharding(dims), ALL) is None


@pytest.mark.parametrize(
    ("axis", "name"),
    [
        ("n", "'n'"),
        ("k:0", "'k:0' (the first factor of 'k', 12 = 2 x 2 x 3)"),
        ("k:2", "'k:2' (the third factor of 'k', 12 = 2 x 2 x 3)"),
    ],
)
def test_a_sub_axis_is_shown_with_the_axis_that_it_is_a_factor_of(axis, name):
    assert show_axis(axis, {"k:0": 2, "k:1": 2, "k:2": 3, "n": 5}) == name


def test_an_axis_is_named_once_in_order():
    assert user_axes(("k:1", "n", "k:0", "m:1")) == ("k", "n", "m")
    assert user_axes(()) == ()


def test_three_factors_are_filled_one_after_another():
    mesh, units = split_axes(reshaped((2, 2, 2)), mw.Mesh({"m": 8}))
    assert [mesh.size(u) for u in units["m"]] == [2, 2, 2]
