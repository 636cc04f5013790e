"""Collectives in groups that share links: closed forms, and agreement with plans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.features.collectives.group_collectives import (
    Group,
    Library,
    group_collective_s,
)
from meshwright.features.collectives.instruction import CollectiveKind
from meshwright.machine import Dim, Kind, Level
from meshwright.machine.placement import Segment
from meshwright.predict.links.collective import COLLECTIVE_S

TORUS = Level("ici", Kind.TORUS, (16, 16), 45e9, 1e-6, wraps_at=4)
SWITCH = Level("nvswitch", Kind.SWITCH, (16,), 270e9, 1e-6)
CARD = Level("network", Kind.SWITCH, (64,), 8e9, 1e-5, group_links=1, one_ring=1)
CARDS = Level("network", Kind.SWITCH, (64,), 8e9, 1e-5, one_ring=1)
HOST = Level(
    "nvlink", Kind.TORUS, (8,), 135e9, 0.0, wraps_at=8, detour_bytes_per_s=16e9
)

AR, RS, AG = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_GATHER,
)
B = 1e12
"""Bytes so many that latency does not count."""


def node(extent, stride=1):
    return Segment(Dim(SWITCH, 16, is_ring=False), extent, stride)


def between(nodes, level=CARD):
    return Segment(Dim(level, nodes, is_ring=False, num_inner=16), nodes, 1)


def seconds(collective, segments, library=Library.RING, idle=1):
    return group_collective_s(collective, B, Group(tuple(segments), idle), library)


def near(value):
    return pytest.approx(value, rel=1e-4)


def test_one_ring_over_two_nodes_is_bound_by_the_network_card():
    """The fastest program of P2 takes 31/16 less, because its hops cross it less often."""
    assert seconds(AR, [between(2), node(16)]) == near(2 * 31 / 32 * B / 8e9)
    assert seconds(AR, [between(2)]) == near(16 * B / 8e9)


def test_groups_that_cross_a_card_share_it():
    for inside in (1, 2, 4, 8, 16):
        count = 2 * inside
        parts = [between(2), node(inside)] if inside > 1 else [between(2)]
        wanted = 2 * (count - 1) / count * B * (16 // inside) / 8e9
        assert seconds(AR, parts) == near(wanted)


def test_one_active_group_of_several_has_the_card_for_itself():
    assert seconds(AR, [between(2)], idle=16) == near(B / 8e9)


def test_devices_with_links_of_their_own_run_as_many_rings():
    parts = [between(2, CARDS), node(16)]
    assert seconds(AR, parts) == near(2 * 31 / 32 * B / (16 * 8e9))
    assert seconds(AR, [between(2, CARDS)]) == near(B / 8e9)


@pytest.mark.parametrize(("nodes", "load"), [(2, 1.0), (4, 2.0), (8, 2.0)])
def test_a_double_tree_is_bound_by_its_busiest_node(nodes, load):
    """Measured in P2: 4.82 s of the ring's 8.44 for 2 nodes, 15.5 s of 12.9 for 4."""
    tree = seconds(AR, [between(nodes), node(16)], Library.TREE)
    assert tree == near(load * B / 8e9)


def parent_in_tree(node, num_nodes):
    """The parent in the first tree, as in NCCL's `ncclGetBtree`."""
    bit = node & -node
    parent = (node ^ bit) | (bit << 1)
    return node ^ bit if parent >= num_nodes else parent


def busiest_load(num_nodes):
    """Bytes out of the busiest node of NCCL's two trees, per byte that is reduced."""
    sent = [0.0] * num_nodes
    for node in range(1, num_nodes):
        edge = (node, parent_in_tree(node, num_nodes))
        if num_nodes % 2 == 0:
            other = [num_nodes - 1 - end for end in edge]
        else:
            other = [(end + 1) % num_nodes for end in edge]
        for end in (*edge, *other):
            sent[end] += 0.5
    return max(sent)


@pytest.mark.parametrize("nodes", range(2, 65))
def test_the_busiest_node_of_a_double_tree_sends_as_counted_edge_by_edge(nodes):
    tree = seconds(AR, [between(nodes), node(16)], Library.TREE)
    assert tree == near(busiest_load(nodes) * B / 8e9)


def hop(extent, stride=1):
    return Segment(Dim(HOST, 8, is_ring=True), extent, stride)


def test_devices_that_do_not_forward_send_through_the_host():
    """The 8 of a ring use links; of 2 groups of 4 neighbours each closes by the host."""
    assert seconds(AR, [hop(8)]) == near(2 * 7 / 8 * B / 270e9)
    assert seconds(AR, [hop(2)]) == near(B / 135e9)
    assert seconds(AR, [hop(4)]) == near(2 * 3 / 4 * B * 2 / 16e9)
    assert seconds(AR, [hop(4, 2)]) == near(2 * 3 / 4 * B * 2 * 4 / 16e9)
    assert seconds(AR, [hop(4)], Library.TREE) == near(B / 135e9)


ONE_LEVEL = st.sampled_from(
    [
        [node(16)],
        [node(4, 4)],
        [between(4)],
        [Segment(Dim(TORUS, 4, is_ring=True), 4, 1)],
        [Segment(Dim(TORUS, 8, is_ring=False), 4, 2)],
        [Segment(Dim(TORUS, 4, is_ring=True), n, 1) for n in (4, 4)],
    ]
)


@given(ONE_LEVEL, st.sampled_from([AR, RS, AG]), st.sampled_from(Library))
def test_within_a_level_the_price_is_that_of_a_plan(segments, collective, library):
    if library is Library.TREE and collective is AR:
        return
    wanted = COLLECTIVE_S[collective.value](B, segments)
    assert seconds(collective, segments, library) == pytest.approx(wanted)


@given(st.sampled_from([2, 4, 16]), st.sampled_from([AR, RS, AG]))
def test_a_plan_pays_for_one_ring_where_the_machine_says_so(inside, collective):
    segments = [between(4), node(inside, 16 // inside)]
    plan = COLLECTIVE_S[collective.value](B, segments)
    assert plan == pytest.approx(seconds(collective, segments))
    assert plan >= seconds(collective, segments, Library.LEVELS)


@given(ONE_LEVEL, st.sampled_from(CollectiveKind), st.sampled_from(Library))
def test_idle_siblings_never_slow_a_group_down(segments, collective, library):
    alone = seconds(collective, segments, library, idle=4)
    assert alone <= seconds(collective, segments, library)
