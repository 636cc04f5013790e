"""Alpa's costs: its closed forms, its resharding examples, laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.alpa import TABLE_2, TABLE_3, product, resharding
from benchmarks.papers.alpa_costs import FORMS, AlphaBeta
from meshwright.errors import MachineError

MESH = AlphaBeta((2, 4), alphas=(2.0, 1.0), betas=(1.0, 0.1))
KINDS = st.sampled_from(sorted(FORMS))
COST = st.floats(0, 1e3)
MESHES = st.builds(
    lambda n, m, a, b: AlphaBeta((n, m), a, b),
    st.integers(2, 64),
    st.integers(2, 64),
    st.tuples(COST, COST),
    st.tuples(COST, COST),
)


@pytest.mark.parametrize(
    ("kind", "axis", "wanted"),
    [
        ("all_gather", 0, 2 + 1024 / 2 + 0.1),
        ("all_gather", 1, 1 + 0.1 * 768 + 0.1),
        ("all_reduce", 0, 2 + 1024 + 0.01),
        ("all_reduce", 1, 1 + 0.1 * 1536 + 0.01),
        ("reduce_scatter", 0, 2 + 512 + 0.001),
        ("reduce_scatter", 1, 1 + 0.1 * 768 + 0.001),
        ("all_to_all", 0, 2 + 256 + 0.001),
        ("all_to_all", 1, 1 + 0.1 * 384 + 0.001),
    ],
)
def test_the_cost_of_1024_bytes(kind, axis, wanted):
    assert MESH.cost(kind, 1024, axis) == pytest.approx(wanted, rel=1e-12)


@given(MESHES, st.floats(0, 1e12), st.integers(0, 1))
def test_costs_are_alpas_closed_forms(mesh, num_bytes, axis):
    n, a, b = mesh.shape[axis], mesh.alphas[axis], mesh.betas[axis]
    wanted = {
        "all_gather": a + b * (n - 1) / n * num_bytes + 0.1,
        "all_reduce": a + b * 2 * (n - 1) / n * num_bytes + 0.01,
        "reduce_scatter": a + b * (n - 1) / n * num_bytes + 0.001,
        "all_to_all": a + b * (n - 1) / n / n * num_bytes * n / 2 + 0.001,
    }
    assert wanted.keys() == FORMS.keys()
    for kind, cost in wanted.items():
        assert mesh.cost(kind, num_bytes, axis) == pytest.approx(cost, rel=1e-12)


@given(MESHES, st.floats(0, 1e12), st.integers(0, 1))
def test_scattering_and_gathering_move_what_an_all_reduce_moves(mesh, num_bytes, axis):
    both = mesh.cost("reduce_scatter", num_bytes, axis)
    both += mesh.cost("all_gather", num_bytes, axis)
    apart = mesh.alphas[axis] + 0.1 + 0.001 - 0.01
    once = mesh.cost("all_reduce", num_bytes, axis)
    assert both == pytest.approx(once + apart, rel=1e-9)


@given(KINDS, MESHES, st.floats(0, 1e6), st.floats(0, 1e6), st.integers(0, 1))
def test_more_bytes_never_cost_less(kind, mesh, few, more, axis):
    few, more = sorted((few, more))
    assert mesh.cost(kind, more, axis) >= mesh.cost(kind, few, axis)


def test_both_axes_flat_start_as_the_slower_and_send_as_the_faster():
    assert MESH.flat() == AlphaBeta((8,), (2.0,), (0.1,))


def test_what_is_no_mesh_is_refused():
    with pytest.raises(MachineError, match="an alpha and a beta for each axis"):
        AlphaBeta((2, 4), (1.0,), (1.0, 1.0))
    with pytest.raises(MachineError, match="costs at least 0"):
        AlphaBeta((2,), (-1.0,), (1.0,))
    with pytest.raises(MachineError, match="no cost for 'permute'; there are all_g"):
        MESH.cost("permute", 1.0, 0)


# -- Alpa's tables 2 and 3 --------------------------------------------------------------


@pytest.mark.parametrize("name", TABLE_2)
def test_table_2_resharding_moves_what_theirs_moves(name):
    have, need, wanted = TABLE_2[name]
    assert resharding(have, need) == wanted


@pytest.mark.parametrize("name", TABLE_3)
def test_table_3_a_product_is_reduced_where_its_sum_is_cut(name):
    cuts, wanted = TABLE_3[name]
    assert product(cuts) == wanted
