"""The placement of a mesh by the cost of all its collectives."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.machine import Mesh, load_machine
from meshwright.machine.placement import place_mesh, placed_by, placement_matrices
from meshwright.predict.links.best_placement import Traffic, best_placement, traffic_s
from meshwright.predict.links.collective import COLLECTIVE_S

P2 = "benchmarks/machines/p2-v100.toml"
MACHINES = [
    load_machine("h100", 32), load_machine("tpu-v5e", 128), load_machine("tpu-v4", 64),
    load_machine("tpu-v5e", 512), load_machine(P2, 32),
]  # fmt: skip
TRAFFIC = st.lists(
    st.builds(
        Traffic,
        st.sampled_from(sorted(COLLECTIVE_S)),
        st.sampled_from([("data",), ("model",), ("data", "model")]),
        st.floats(1.0, 1e9),
        st.integers(1, 50),
    ),
    min_size=1,
    max_size=5,
)
MACHINE = st.sampled_from(MACHINES)


@settings(max_examples=80, deadline=None)
@given(MACHINE, st.sampled_from([2, 4, 8, 16]), TRAFFIC)
def test_never_slower_than_the_placement_by_bandwidth(machine, model, traffic):
    mesh = Mesh({"data": machine.num_devices // model, "model": model})
    best = traffic_s(traffic, best_placement(traffic, mesh, machine))
    assert best <= traffic_s(traffic, place_mesh(mesh, machine))


@settings(max_examples=40, deadline=None)
@given(MACHINE, st.sampled_from([2, 4, 8]), TRAFFIC)
def test_no_placement_is_faster_by_more_than_a_thousandth(machine, model, traffic):
    mesh = Mesh({"data": machine.num_devices // model, "model": model})
    best = traffic_s(traffic, best_placement(traffic, mesh, machine))
    for matrix in placement_matrices(mesh, machine):
        assert traffic_s(traffic, placed_by(matrix, mesh, machine)) >= 0.998 * best


@given(MACHINE, TRAFFIC)
def test_seconds_of_all_are_the_sum_of_each(machine, traffic):
    placement = place_mesh(
        Mesh({"data": machine.num_devices // 4, "model": 4}), machine
    )
    each = sum(
        t.runs * COLLECTIVE_S[t.kind](t.num_bytes, placement.of(t.axes))
        for t in traffic
    )
    assert traffic_s(traffic, placement) == pytest.approx(each, rel=1e-6)


def test_heavy_traffic_of_the_last_axis_goes_inside_the_nodes():
    mesh, machine = Mesh({"data": 8, "model": 4}), load_machine("h100", 32)
    heavy = [
        Traffic("all_reduce", ("model",), 1e9),
        Traffic("all_reduce", ("data",), 1e6),
    ]
    usual, best = place_mesh(mesh, machine), best_placement(heavy, mesh, machine)
    assert usual.matrix == ((1, 8), (4, 1))
    assert best.matrix == ((4, 2), (1, 4))
    assert str(best) == (
        "data 4 x network + 2 of 8 x nvlink at stride 4, model 4 of 8 x nvlink"
    )
    assert traffic_s(heavy, best) < 0.2 * traffic_s(heavy, usual)
