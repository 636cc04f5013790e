"""Decisions of a plan written as ordinary tactics, which propagate to the same ones."""

import pytest

import meshwright as mw
from meshwright.machine import Mesh
from meshwright.partitioner.structure.workspace import without_indices
from meshwright.planner.spelling.site_graph import build_site_graph
from meshwright.planner.spelling.spelling import spellings
from meshwright.planner.spelling.tactic_patterns import tactics_as_code
from tests.planner.programs import DEEP, MESH, MLP, space_of

PLANS = {
    "data parallel": (mw.data_parallel("data"),),
    "Megatron": (mw.data_parallel("data"), mw.megatron("model")),
    "ZeRO-3": (mw.data_parallel("data"), mw.zero(3, "data")),
}


def decided(program, tactics):
    """A workspace of a program after tactics."""
    work = space_of(program).start(Mesh(MESH))
    for tactic in tactics:
        tactic.apply(work)
    return work


@pytest.mark.parametrize("program", [MLP, DEEP], ids=["mlp", "deep"])
@pytest.mark.parametrize("name", PLANS)
def test_the_tactics_propagate_to_the_decisions_of_the_plan(program, name):
    found = decided(program, PLANS[name])
    space = space_of(program)
    lists = spellings(found, space.start(Mesh(MESH)), lambda: False)
    *_, tactics = lists
    again = decided(program, tactics)
    assert len(tactics) <= 4
    pairs = list(zip(found.state.factor_of, again.state.factor_of, strict=True))
    equal = sum(one == other for one, other in pairs)
    assert equal == len(pairs)


def test_a_node_of_the_site_graph_stands_for_nodes_that_are_sharded_alike():
    found = decided(DEEP, PLANS["Megatron"])
    small = build_site_graph(found)
    assert len(small.members) < len(found.graph.nodes)
    assert sorted(i for own in small.members for i in own) == [
        node.index for node in found.graph.nodes
    ]
    for first, *others in small.members:
        for other in others:
            assert found.state.factor_of[first] == found.state.factor_of[other]


def test_no_tactics_are_written_once_the_time_is_over():
    found = decided(DEEP, PLANS["data parallel"])
    start = space_of(DEEP).start(Mesh(MESH))
    assert [*spellings(found, start, lambda: True)] == [()]


def test_tactics_as_code_are_read_back_as_the_same():
    tactics = (mw.shard({"x": 0, "params.**": mw.FIRST_DIVISIBLE}, axis="data"),)
    code = tactics_as_code(tactics)
    assert code == ("mw.shard({'x': 0, 'params.**': mw.FIRST_DIVISIBLE}, axis='data'),")
    assert eval(f"({code})", {"mw": mw}) == tactics


def test_a_family_of_leaves_has_a_star_for_each_index():
    assert without_indices("state.blocks.3.up.0") == "state.blocks.*.up.*"
