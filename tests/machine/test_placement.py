"""Where mesh axes lie: the enumeration of P2, and the choice among it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import MachineError
from meshwright.machine import Mesh, load_machine
from meshwright.machine.placement import (
    matrices,
    place_mesh,
    placed_by,
    placement_matrices,
)


def test_the_example_of_p2_has_its_three_matrices_among_all():
    found = matrices((4, 4), (1, 2, 2, 4))
    for matrix in (
        ((1, 2, 2, 1), (1, 1, 1, 4)),
        ((1, 2, 1, 2), (1, 1, 2, 2)),
        ((1, 1, 2, 2), (1, 2, 1, 2)),
    ):
        assert matrix in found


@pytest.mark.parametrize(
    ("axes", "count"), [((32,), 1), ((2, 16), 2), ((4, 8), 2), ((2, 2, 8), 3)]
)
def test_two_level_systems_have_as_many_matrices_as_p2_counts(axes, count):
    """Table 4 of P2 on [2 16]: 1 for one axis, 2 for two, 3 for three."""
    assert len(matrices(axes, (2, 16))) == count


@given(st.permutations([1, 2, 3, 4, 6]), st.integers(1, 3))
def test_rows_and_columns_have_the_products_asked_for(sizes, cut):
    rows, total = tuple(sizes), math.prod(sizes)
    columns = (cut, total // cut)
    if cut * columns[1] != total:
        return
    for matrix in matrices(rows, columns):
        assert tuple(map(math.prod, matrix)) == rows
        assert tuple(map(math.prod, zip(*matrix, strict=True))) == columns


def segments(mesh, machine):
    placed = place_mesh(Mesh(mesh), machine)
    return {
        axis: [(s.extent, s.stride, s.is_ring) for s in found]
        for axis, found in placed.segments
    }


def test_axes_own_whole_dims_where_they_can():
    assert segments({"data": 8, "model": 4}, load_machine("tpu-v5e", 32)) == {
        "data": [(8, 1, False)],
        "model": [(4, 1, False)],
    }


def test_the_last_axis_gets_the_ring():
    found = segments({"data": 8, "model": 16}, load_machine("tpu-v5e", 128))
    assert found == {"data": [(8, 1, False)], "model": [(16, 1, True)]}


def test_axes_that_share_a_dim_share_its_links():
    found = segments({"data": 2, "model": 4}, load_machine("h100", 8))
    assert found == {"data": [(2, 4, False)], "model": [(4, 1, False)]}


def test_a_mesh_of_another_size_is_refused():
    with pytest.raises(MachineError, match="mesh data=4 has 4 devices, machine h100 8"):
        place_mesh(Mesh({"data": 4}), load_machine("h100", 8))


@given(st.sampled_from([("h100", 32), ("tpu-v5e", 128), ("tpu-v4", 64)]), st.data())
def test_the_device_order_puts_each_axis_on_its_segments(named, data):
    """Two devices that differ along one axis only lie on the same rows of other dims."""
    machine = load_machine(*named)
    mesh = Mesh({"a": 4, "b": machine.num_devices // 8, "c": 2})
    matrix = data.draw(st.sampled_from(placement_matrices(mesh, machine)))
    placement = placed_by(matrix, mesh, machine)
    order = np.array(placement.device_order()).reshape(tuple(mesh.shape.values()))
    assert sorted(order.flat) == list(range(machine.num_devices))
    extents = [dim.extent for dim in machine.grid]
    for axis in range(len(mesh.sizes)):
        group = np.moveaxis(order, axis, 0).reshape(order.shape[axis], -1)[:, 0]
        places = np.unravel_index(group, extents)
        for dim, extent in enumerate(matrix[axis]):
            below = math.prod(row[dim] for row in matrix[axis + 1 :])
            assert sorted(set(places[dim])) == [below * i for i in range(extent)]
