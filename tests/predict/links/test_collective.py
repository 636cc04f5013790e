"""Seconds of collectives: closed forms, laws, and enumeration on a line."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.machine import Dim, Kind, Level
from meshwright.machine.placement import Segment
from meshwright.predict.links.collective import (
    COLLECTIVE_S,
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    permute_s,
    reduce_scatter_s,
)

TORUS = Level("ici", Kind.TORUS, (16, 16), 45e9, 0.0, wraps_at=16)
SWITCH = Level("nvlink", Kind.SWITCH, (8,), 450e9, 0.0)
NETWORK = Level("network", Kind.SWITCH, (64,), 50e9, 0.0)


def segment(level, extent, is_ring=False, stride=1):
    return Segment(Dim(level, extent * stride, is_ring), extent, stride)


def test_a_ring_gathers_in_both_directions():
    ring = segment(TORUS, 16, is_ring=True)
    assert all_gather_s(16e9, [ring]) == pytest.approx(15e9 / 90e9)


def test_a_torus_gathers_over_all_its_dims_at_once():
    """Bytes over the sum of the links' rates, for dims of any size ("the scaling book")."""
    ring = segment(TORUS, 16, is_ring=True)
    assert all_gather_s(256e9, [ring, ring]) == pytest.approx(255e9 / 180e9)


def test_a_switch_gathers_what_a_device_lacks():
    assert all_gather_s(8e9, [segment(SWITCH, 8)]) == pytest.approx(7e9 / 450e9)


def test_levels_run_one_after_another_the_slow_one_on_fewer_bytes():
    inner, outer = segment(SWITCH, 8), segment(NETWORK, 4)
    wanted = 3 * 1e9 / 50e9 + 7 * 4e9 / 450e9
    assert all_gather_s(32e9, [outer, inner]) == pytest.approx(wanted)


def test_an_all_to_all_on_a_ring_takes_a_quarter_of_a_gather():
    ring = segment(TORUS, 16, is_ring=True)
    gathered = all_gather_s(16e9, [ring]) * 16 / 15  # n - 1 of n parts move
    assert all_to_all_s(1e9, [ring]) == pytest.approx(gathered / 4)


def busiest_link_of_a_line(extent):
    """Bytes on the busiest link in one direction if each device sends 1 to each other."""
    loads = [0] * (extent - 1)
    for source in range(extent):
        for target in range(source + 1, extent):
            for link in range(source, target):
                loads[link] += 1
    return max(loads)


@pytest.mark.parametrize("extent", [2, 4, 8, 16])
def test_an_all_to_all_on_a_line_is_bound_by_its_middle_link(extent):
    line = segment(TORUS, extent)
    seconds = all_to_all_s(extent * 1e9, [line])
    assert seconds == pytest.approx(busiest_link_of_a_line(extent) * 1e9 / 45e9)


KINDS = st.sampled_from(sorted(COLLECTIVE_S))
SEGMENTS = st.lists(
    st.builds(
        segment,
        st.sampled_from([TORUS, SWITCH, NETWORK]),
        st.sampled_from([2, 4, 8]),
        st.booleans(),
        st.sampled_from([1, 2]),
    ),
    min_size=1,
    max_size=3,
)


@given(SEGMENTS)
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(segments):
    both = reduce_scatter_s(1e9, segments) + all_gather_s(1e9, segments)
    assert all_reduce_s(1e9, segments) == pytest.approx(both)


@given(KINDS, SEGMENTS)
def test_more_bytes_are_never_faster(kind, segments):
    seconds = COLLECTIVE_S[kind]
    assert seconds(2e9, segments) >= seconds(1e9, segments) >= 0


@given(KINDS, SEGMENTS)
def test_a_shared_link_is_never_faster(kind, segments):
    alone = [Segment(s.dim, s.extent, 1) for s in segments if not s.is_ring]
    shared = [Segment(s.dim, s.extent, 2) for s in segments if not s.is_ring]
    assert COLLECTIVE_S[kind](1e9, shared) >= COLLECTIVE_S[kind](1e9, alone)


@given(KINDS)
def test_a_collective_over_no_axis_takes_no_time(kind):
    assert COLLECTIVE_S[kind](1e9, []) == 0


def test_a_neighbour_is_one_hop_away():
    assert math.isclose(permute_s(45e9, [segment(TORUS, 4)]), 1.0)


def test_a_switch_that_adds_speeds_up_an_all_reduce_over_all_its_devices():
    """NCCL's NVLS; a ring over some of the devices, and other collectives, gain nothing."""
    adding = replace(SWITCH, switch_gain=1.25)
    whole, half = segment(adding, 8), segment(adding, 4)
    plain, plain_half = segment(SWITCH, 8), segment(SWITCH, 4)
    assert all_reduce_s(8e9, [whole]) == pytest.approx(
        all_reduce_s(8e9, [plain]) / 1.25
    )
    assert all_reduce_s(8e9, [half]) == all_reduce_s(8e9, [plain_half])
    assert all_gather_s(8e9, [whole]) == all_gather_s(8e9, [plain])


@pytest.mark.parametrize("kind", sorted(COLLECTIVE_S))
def test_a_collective_takes_time_to_start(kind):
    """The longest start of its levels, for each of the passes that an all-reduce makes."""
    slow, fast = replace(SWITCH, start_s=3e-5), replace(NETWORK, start_s=1e-5)
    started = [segment(slow, 8), segment(fast, 4)]
    plain = [segment(SWITCH, 8), segment(NETWORK, 4)]
    passes = 2 if kind == "all_reduce" else 1
    seconds = COLLECTIVE_S[kind](1e6, started) - COLLECTIVE_S[kind](1e6, plain)
    assert seconds == pytest.approx(passes * 3e-5)
