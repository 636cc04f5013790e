"""Hierarchies: placements on them, and the grid that they give a machine."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import meshwright as mw
from meshwright.errors import MachineError, MeshError
from meshwright.features.collectives.hierarchy import machine_on, require_placement
from meshwright.machine import load_machine


def test_placements_print_as_matrices():
    assert str(mw.placements(hierarchy=[4, 16], axes=[2, 32])).splitlines() == [
        "2 placements of axes 2x32 on hierarchy 4x16",
        "  [[1 2] [4 8]]",
        "  [[2 1] [2 16]]",
    ]


@given(
    st.lists(st.sampled_from([1, 2, 3, 4]), min_size=2, max_size=5),
    st.permutations([2, 3, 4]),
)
def test_placements_fill_hierarchies_of_two_to_five_levels(levels, axes):
    total, size = math.prod(levels), axes[0]
    if total % size:
        return
    found = mw.placements(levels, [size, total // size])
    assert len(set(found)) == len(found) > 0
    for matrix in found:
        assert require_placement(matrix, levels) == matrix


@pytest.mark.parametrize(
    ("hierarchy", "axes", "why"),
    [
        ([4, 16], [2, 16], "axes 2x16 have 32 devices, hierarchy 4x16 64"),
        ([4, 0], [4], "hierarchy has 0; wanted ints of 1 or more"),
        ([], [4], "hierarchy is empty"),
        ("4,16", [64], "hierarchy is '4,16'"),
        ([4, 16], [2, 32.0], "axes has 32.0"),
    ],
)
def test_what_cannot_be_placed_says_why(hierarchy, axes, why):
    with pytest.raises(MeshError, match=why):
        mw.placements(hierarchy, axes)


@pytest.mark.parametrize(
    ("matrix", "why"),
    [
        ([[1, 2], [4, 4]], "have products 4x8; hierarchy is 4x16"),
        ([[1, 2, 1]], "must have 2 columns"),
        ([3], "a row of the placement is 3"),
    ],
)
def test_a_matrix_of_another_hierarchy_is_refused(matrix, why):
    with pytest.raises(MeshError, match=why):
        require_placement(matrix, [4, 16])


@pytest.mark.parametrize(
    ("name", "hierarchy", "levels"),
    [
        ("h100", [4, 8], ["network", "nvlink"]),
        ("h100", [2, 4], ["network", "nvlink"]),
        ("tpu-v5e", [4, 8], ["ici", "ici"]),
        ("tpu-v5e", [2, 16, 16], ["dcn", "ici", "ici"]),
        ("tpu-v4", [2, 4, 4, 4], ["dcn", "ici", "ici", "ici"]),
        ("tpu-v4", [8], ["ici"]),
    ],
)
def test_levels_take_the_numbers_of_a_hierarchy(name, hierarchy, levels):
    found = machine_on(load_machine(name), hierarchy)
    assert [dim.level.name for dim in found.grid] == levels
    assert [dim.extent for dim in found.grid] == hierarchy
    assert found.num_devices == math.prod(hierarchy)


def test_the_grid_of_its_own_hierarchy_is_that_of_the_machine():
    for name, count in (("h100", 32), ("tpu-v5e", 512), ("tpu-v4", 64)):
        own = load_machine(name, count)
        extents = [dim.extent for dim in own.grid]
        assert machine_on(load_machine(name), extents).grid == own.grid


@pytest.mark.parametrize("hierarchy", [[4, 16], [2, 2, 2], [5000, 8]])
def test_a_hierarchy_that_does_not_match_says_what_the_levels_join(hierarchy):
    with pytest.raises(MachineError, match=r"network \(switch\) at most 4096, nvlink"):
        machine_on(load_machine("h100"), hierarchy)
