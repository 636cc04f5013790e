"""Equal nodes form one class, and classes keep the total of executions."""

import jax
import pytest

import meshwright as mw
from meshwright.machine import Mesh
from meshwright.partitioner.decide import start_workspace
from meshwright.planner.strategies.symmetry import reduce_by_symmetry
from tests.planner.programs import DEEP, MESH, MLP, space_of

TACTICS = {
    "none": (),
    "data": (mw.data_parallel("data"),),
    "both": (mw.data_parallel("data"), mw.megatron("model")),
    "zero": (mw.data_parallel("data"), mw.zero(3, "data")),
}


def state_of(space, tactics=()):
    work = start_workspace(space.captured, Mesh(MESH), space.graph)
    for tactic in tactics:
        tactic.apply(work)
    return work.state


def test_twice_as_many_layers_make_as_many_classes():
    fn, ((*layers,), x) = DEEP
    folds = [
        reduce_by_symmetry(state_of(space_of((fn, (layers * times, x)))))
        for times in (1, 2)
    ]
    assert len(folds[0].classes) == len(folds[1].classes)
    assert len(folds[1].class_of) > 1.8 * len(folds[0].class_of)


@pytest.mark.parametrize("program", [MLP, DEEP], ids=["mlp", "deep"])
def test_members_and_edges_count_each_node_and_each_operand(program):
    space = space_of(program)
    folded = reduce_by_symmetry(state_of(space))
    assert sum(len(g.members) for g in folded.classes) == len(space.graph.nodes)
    readings = sum(len(node.ins) for node in space.graph.nodes)
    assert sum(edge.runs for edge in folded.edges) == readings


@pytest.mark.parametrize("tactics", TACTICS.values(), ids=TACTICS)
def test_nodes_with_different_decisions_are_in_different_classes(tactics):
    space = space_of(DEEP)
    state = state_of(space, tactics)
    for group in reduce_by_symmetry(state).classes:
        decided = {
            tuple(sorted(state.axes_of[index].items())) for index in group.members
        }
        assert len(decided) == 1


def test_a_loops_body_runs_once_per_iteration():
    def step(x, ws):
        return jax.lax.scan(lambda y, w: (jax.numpy.tanh(y @ w), None), x, ws)[0]

    args = (jax.ShapeDtypeStruct((8, 8), "float32"),) + (
        jax.ShapeDtypeStruct((5, 8, 8), "float32"),
    )
    space = space_of((step, args))
    runs = {
        g.node.op.kind: g.runs
        for g in reduce_by_symmetry(state_of(space)).classes
        if g.node.op is not None and g.node.wire is None
    }
    assert runs["tanh"] == 5
