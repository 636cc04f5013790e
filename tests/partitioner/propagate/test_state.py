"""The table of cuts: what may be written into it, and how it is taken back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from meshwright.partitioner.propagate import Cause, Conflict, Node, State, why_not
from tests.partitioner.propagate.programs import (
    MESH,
    PROGRAMS,
    engine,
    f32,
    fresh,
    made,
    snapshot,
    steps,
    take,
    take_all,
    the,
)

NAMES = st.sampled_from(sorted(PROGRAMS))
BY_HAND = Cause("tactic", "by hand")


@given(NAMES, steps(), steps())
def test_a_rollback_restores_exactly_what_was_decided_before(name, before, after):
    run = fresh(name)
    take_all(run, before)
    mark, wanted = run.state.mark(), snapshot(run.state)
    take_all(run, after)
    run.state.rollback(mark)
    assert snapshot(run.state) == wanted


@given(NAMES, steps(), steps())
def test_after_a_rollback_decisions_have_the_effect_they_had_before(name, tried, kept):
    run, other = fresh(name), fresh(name)
    mark = run.state.mark()
    take_all(run, tried)
    run.state.rollback(mark)
    take_all(run, kept)
    take_all(other, kept)
    assert snapshot(run.state) == snapshot(other.state)


def test_marks_nest():
    run = fresh("mlp")
    marks, wanted = [], []
    for number in (0, 3, 6, 9):
        marks.append(run.state.mark())
        wanted.append(snapshot(run.state))
        take(run, ("cut", number, "ab"[number % 2], 0))
        run.state.block(run.graph.nodes[number], "b")
    for mark, known in reversed(list(zip(marks, wanted, strict=True))):
        run.state.rollback(mark)
        assert snapshot(run.state) == known


def test_a_rollback_forgets_conflicts_and_scatters_and_brings_back_the_retracted():
    run = engine(lax.sin, f32(8, 8))
    state, node = run.state, the(run, "sin")
    state.assign(node, "a", 0, BY_HAND)
    state.assign(node, "b", 0, BY_HAND)
    mark, wanted = state.mark(), snapshot(state)
    state.retract(node, "a")
    state.assign(node, "a", 1, Cause("forward", "another"))
    state.scatter(made(node), "b", 1)
    state.add_conflict(Conflict(node.index, "b", (), ""))
    state.request(made(node), "a", 0, node.index)
    assert (state.axes_of[node.index][0], state.axes_of[node.index][1]) == (
        ("b",),
        ("a",),
    )
    state.rollback(mark)
    assert snapshot(state) == wanted
    assert state.axes_of[node.index][0] == ("a", "b")


def test_a_rollback_takes_back_what_was_settled_and_kept():
    run = engine(lax.sin, f32(8, 8))
    state, value = run.state, made(the(run, "sin"))
    state.keep(value, (("a",), ()))
    marks = [(state.mark(), set(state.settled), dict(state.kept), state.version)]
    state.settle(value, "a")
    state.keep(value, ((), ("b",)))
    marks.append((state.mark(), set(state.settled), dict(state.kept), state.version))
    state.settle(value, "b")
    assert state.version > marks[1][3] > marks[0][3]
    for mark, settled, kept, _ in reversed(marks):
        state.rollback(mark)
        assert (set(state.settled), state.kept) == (settled, kept)


def test_each_change_and_each_rollback_is_a_new_version():
    state = engine(lax.sin, f32(8, 8)).state
    node, versions = state.graph.nodes[0], [state.version]
    mark = state.mark()
    state.assign(node, "a", 0, BY_HAND)
    versions.append(state.version)
    state.block(node, "b")
    versions.append(state.version)
    state.rollback(mark)
    versions.append(state.version)
    assert versions == sorted(set(versions))


def test_the_first_conflict_and_the_first_request_stand():
    run = engine(lax.sin, f32(8, 8))
    node = the(run, "sin")
    first = Conflict(node.index, "a", ((0, 0, "operand"),), "first")
    run.state.add_conflict(first)
    run.state.add_conflict(Conflict(node.index, "a", (), "second"))
    assert list(run.state.conflicts.values()) == [first]
    run.state.request(made(node), "a", 0, 5)
    mark = run.state.mark()
    run.state.request(made(node), "a", 0, 6)
    assert run.state.mark() == mark
    assert run.state.requests[made(node), "a"] == {0: 5}


# -- why_not --------------------------------------------------------------------------


def is_legal(state: State, node: Node, axis: str, factor: int) -> bool:
    """From first principles: free, in whole parts, and contiguous in every dim."""
    index = node.index
    if axis in state.blocked[index] or axis in state.factor_of[index]:
        return False
    parts = {f: state.parts(node, f) for f in range(len(node.sizes))}
    parts[factor] *= state.size[axis]
    least = (node.rule.least or {}) if node.rule else {}
    if node.sizes[factor] % parts[factor]:
        return False
    if node.sizes[factor] // parts[factor] < least.get(factor, 1):
        return False
    return all(
        parts[minor] == 1 or parts[major] == node.sizes[major]
        for _, dims in (*node.ins, *node.outs)
        for factors in dims
        for place, minor in enumerate(factors)
        for major in factors[:place]
    )


@given(NAMES, steps())
def test_there_is_a_reason_exactly_where_a_cut_is_not_legal(name, decisions):
    run = fresh(name)
    take_all(run, decisions)
    state = run.state
    scattered = {value for value, _ in state.scattered}
    for node in run.graph.nodes:
        if scattered & {value for value, _ in node.outs}:
            continue
        for axis in MESH.axes:
            for factor in range(len(node.sizes)):
                why = why_not(state, node, axis, factor)
                assert (why is None) == is_legal(state, node, axis, factor), why


@given(NAMES, steps(), st.integers(0, 999), st.sampled_from(MESH.axes), st.data())
def test_what_is_refused_changes_nothing(name, decisions, number, axis, data):
    run = fresh(name)
    take_all(run, decisions)
    nodes = [n for n in run.graph.nodes if n.sizes]
    node = nodes[number % len(nodes)]
    factor = data.draw(st.integers(0, len(node.sizes) - 1))
    before, why = snapshot(run.state), why_not(run.state, node, axis, factor)
    assert run.cut(node, axis, factor) == why
    if why is not None:
        assert snapshot(run.state) == before
    else:
        assert run.state.factor_of[node.index][axis] == factor


def test_a_reason_is_a_sentence_that_names_what_is_in_the_way():
    run = engine(lambda x: lax.sin(x), f32(6, 8))
    state, node = run.state, the(run, "sin")
    assert why_not(state, node, "b", 0) == "4 parts do not divide extent 6"
    assert why_not(state, node, "b", 1) is None
    state.assign(node, "b", 1, BY_HAND)
    assert why_not(state, node, "b", 1) == "'b' cuts another dim of this sin already"
    assert why_not(state, node, "a", 0) is None
    assert why_not(state, node, "a", 1) is None
    state.block(node, "a")
    assert why_not(state, node, "a", 0) == "sin is kept whole along 'a'"


def test_parts_of_several_axes_multiply():
    run = engine(lax.sin, f32(4, 8))
    state, node = run.state, the(run, "sin")
    state.assign(node, "a", 0, BY_HAND)
    assert why_not(state, node, "b", 0) == "8 parts do not divide extent 4"
    state.assign(node, "b", 1, BY_HAND)
    assert [state.parts(node, f) for f in (0, 1)] == [2, 4]
    assert str(state.sharding_at(node, node.outs[0])) == "[a, b]"


@pytest.mark.parametrize(("cuts", "is_open"), [((), False), ((("a", 0),), True)])
def test_a_minor_part_of_a_reshape_is_cut_only_once_the_major_one_is(cuts, is_open):
    run = engine(lambda x: x.reshape(2, 8), f32(16))
    node = the(run, "reshape")
    for axis, factor in cuts:
        run.state.assign(node, axis, factor, BY_HAND)
    why = why_not(run.state, node, "b", 1)
    wanted = "the cut does not line up with the split of a reshape"
    assert why == (None if is_open else wanted)


def test_the_parts_that_a_sum_leaves_must_divide_too():
    run = engine(lambda x, w: x @ w, f32(4, 8), f32(8, 6))
    node = the(run, "dot_general")
    _, contracted = (d[0] for d in node.ins[0][1])
    run.state.assign(node, "b", contracted, BY_HAND)
    assert run.state.dim_on(made(node), "b") == -1
    assert run.state.is_available(made(node), 0, "b")
    assert not run.state.is_available(made(node), 1, "b")
    run.state.scatter(made(node), "b", 0)
    assert run.state.dim_on(made(node), "b") == 0
    row = node.outs[0][1][0][0]
    why = why_not(run.state, node, "a", row)
    assert why == "'a' does not divide dim 0 of the reduce-scattered sum"
