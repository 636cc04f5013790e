"""Propagation: cuts only add, spread along values, and stop where they clash."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from meshwright.partitioner.lower import count_collectives, lower
from meshwright.partitioner.propagate import (
    Cause,
    Graph,
    Node,
    Propagator,
    State,
    why_not,
)
from meshwright.program.capture import capture
from tests.partitioner.lower.verifier import verify_lowered
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


def dims(run: Propagator, axis: str) -> list[int | None]:
    """The dim that an axis cuts of each value, -1 where it is partial."""
    return [run.state.dim_on(v, axis) for v in range(len(run.graph.values))]


# -- laws -----------------------------------------------------------------------------


@given(NAMES, steps(8))
def test_a_cut_never_changes_an_earlier_one(name, decisions):
    run = fresh(name)
    for step in decisions:
        before = snapshot(run.state)
        take(run, step)
        after = snapshot(run.state)
        for old, new in zip(before["factor_of"], after["factor_of"], strict=True):
            assert old.items() <= new.items()
        for old, new in zip(before["axes_of"], after["axes_of"], strict=True):
            assert all(new[f][: len(axes)] == axes for f, axes in old.items())
        for what in ("scattered", "causes", "conflicts"):
            assert before[what].items() <= after[what].items()


@given(NAMES, steps(8))
def test_the_same_decisions_make_the_same_state(name, decisions):
    one, two = fresh(name), fresh(name)
    take_all(one, decisions)
    take_all(two, decisions)
    assert snapshot(one.state) == snapshot(two.state)


@given(NAMES, steps(8))
def test_the_two_tables_of_cuts_say_the_same(name, decisions):
    run = fresh(name)
    take_all(run, decisions)
    for factor_of, axes_of in zip(run.state.factor_of, run.state.axes_of, strict=True):
        listed = {a: f for f, axes in axes_of.items() for a in axes}
        assert listed == factor_of
        assert sum(map(len, axes_of.values())) == len(factor_of)


@given(NAMES, steps(8))
def test_every_cut_goes_back_to_a_tactic(name, decisions):
    run = fresh(name)
    take_all(run, decisions)
    nodes, causes = run.graph.nodes, run.state.causes
    for index, axis in causes:
        seen = []
        while causes[index, axis].how != "tactic":
            cause = causes[index, axis]
            seen.append(index)
            read, made_ = (
                {v for v, _ in ports} for ports in (nodes[index].ins, nodes[index].outs)
            )
            assert cause.value in (made_ if cause.how == "backward" else read)
            index = cause.node
            assert index not in seen


def test_a_scattered_partial_sum_is_cut_because_of_the_consumer_that_wants_it():
    def fn(x, w, c):
        y = -(x @ w)
        return y + c, jnp.tanh(y)

    run = engine(fn, f32(8, 16), f32(16, 8), f32(8, 8))
    dot, neg, tanh = (the(run, kind) for kind in ("dot_general", "neg", "tanh"))
    add = run.graph.nodes[neg.index + 1]
    (contracted,) = dot.rule.reductions
    run.cut(dot, "b", contracted, "contract")
    run.cut(add, "b", 0, "rows")
    assert "b" not in run.state.factor_of[neg.index]
    assert run.state.scattered == {(made(neg), "b"): 0}
    assert run.state.causes[tanh.index, "b"] == Cause(
        "scatter", "rows", add.index, made(neg)
    )


def claims(state: State, node: Node, axis: str) -> Iterator[int]:
    """The factors that cut operands name and that could be cut."""
    for value, port in node.ins:
        dim = state.dim_on(value, axis)
        if dim is None or dim < 0:
            continue
        for factor in port[dim]:
            if state.parts(node, factor) < node.sizes[factor]:
                if why_not(state, node, axis, factor) is None:
                    yield factor
                break


@given(NAMES, st.integers(0, 999), st.sampled_from(MESH.axes), st.integers(0, 999))
def test_one_cut_goes_as_far_as_it_can(name, number, axis, factor):
    run = fresh(name)
    take(run, ("cut", number, axis, factor))
    for node in run.graph.nodes:
        if axis not in run.state.factor_of[node.index]:
            wanted = set(claims(run.state, node, axis))
            is_conflict = (node.index, axis) in run.state.conflicts
            assert len(wanted) > 1 if is_conflict and wanted else not wanted


@given(NAMES, steps(8))
def test_a_conflict_is_two_factors_of_a_node_that_stays_whole(name, decisions):
    run = fresh(name)
    for step in decisions:
        known = set(run.state.conflicts)
        take(run, step)
        for index, axis in run.state.conflicts.keys() - known:
            node, conflict = run.graph.nodes[index], run.state.conflicts[index, axis]
            assert axis not in run.state.factor_of[index]
            factors = [f for f, _, _ in conflict.sides]
            assert len(set(factors)) == len(factors) >= 2
            for factor, value, side in conflict.sides:
                ports = node.ins if side == "operand" else node.outs
                assert any(
                    v == value and any(factor in fs for fs in port) for v, port in ports
                )


@given(NAMES, st.data(), steps(8))
def test_a_blocked_node_stays_whole(name, data, decisions):
    run = fresh(name)
    nodes = st.sampled_from(range(len(run.graph.nodes)))
    blocked = data.draw(st.sets(nodes, max_size=4))
    for index in blocked:
        run.state.block(run.graph.nodes[index], "a")
    take_all(run, decisions)
    assert all("a" not in run.state.factor_of[index] for index in blocked)


@settings(max_examples=25)
@given(NAMES, steps())
def test_every_state_can_be_lowered(name, decisions):
    run = fresh(name)
    take_all(run, decisions)
    verify_lowered(lower(run.state), run.graph.program)


# -- single cases ---------------------------------------------------------------------


def chain(x):
    return lax.tan(lax.cos(lax.exp(lax.sin(x))))


def test_a_cut_goes_both_ways_from_where_it_is_made():
    run = engine(chain, f32(8, 8))
    assert run.cut(the(run, "exp"), "a", 1, "here") is None
    assert dims(run, "a") == [1] * 5
    causes = [run.state.causes[n.index, "a"] for n in run.graph.nodes]
    assert [c.how for c in causes] == [
        "backward",
        "backward",
        "tactic",
        "forward",
        "forward",
    ]
    assert {c.tactic for c in causes} == {"here"}


def test_forward_goes_before_backward():
    run = engine(chain, f32(8, 8))
    run.cut_all([(run.graph.input_nodes[0], 0), (the(run, "tan"), 1)], "a")
    assert dims(run, "a") == [0, 0, 0, 0, 1]
    run = engine(chain, f32(8, 8))
    run.cut_all([(the(run, "tan"), 1), (run.graph.input_nodes[0], 0)], "a")
    assert dims(run, "a") == [0, 0, 0, 0, 1]


def test_seeds_that_cannot_be_cut_are_left_out():
    run = engine(lambda x, y: (lax.sin(x), lax.cos(y)), f32(6), f32(8))
    run.cut_all([(n, 0) for n in run.graph.input_nodes], "b")
    assert dims(run, "b") == [None, 0, None, 0]
    assert run.cut(run.graph.input_nodes[0], "b", 0) == "4 parts do not divide extent 6"


def test_operands_that_want_one_axis_on_two_factors_conflict():
    run = engine(lambda x, y: x @ y, f32(8, 4), f32(4, 8))
    product, (x, y) = the(run, "dot_general"), run.graph.input_nodes
    run.cut_all([(x, 0), (y, 1)], "a", "both")
    (conflict,) = run.state.conflicts.values()
    assert (conflict.node, conflict.axis, conflict.tactic) == (
        product.index,
        "a",
        "both",
    )
    rows, columns = (factors[0] for factors in product.outs[0][1])
    assert conflict.sides == (
        (rows, made(x), "operand"),
        (columns, made(y), "operand"),
    )
    assert not run.state.factor_of[product.index]
    assert run.state.dim_on(made(product), "a") is None


def test_readers_that_want_one_axis_on_two_dims_conflict():
    def fn(x):
        y = lax.exp(x)
        return lax.sin(y), lax.cos(y)

    run = engine(fn, f32(8, 8))
    run.cut_all([(the(run, "sin"), 0), (the(run, "cos"), 1)], "a")
    (conflict,) = run.state.conflicts.values()
    value = made(the(run, "exp"))
    assert conflict.sides == ((0, value, "result"), (1, value, "result"))
    assert dims(run, "a") == [None, None, 0, 1]


def test_a_claim_that_cannot_be_met_is_no_side_of_a_conflict():
    mesh = {"a": 2, "b": 4, "c": 2}
    run = engine(lambda x, y: x @ y, f32(8, 4), f32(4, 8), mesh=mesh)
    product, (x, y) = the(run, "dot_general"), run.graph.input_nodes
    rows, columns = (factors[0] for factors in product.outs[0][1])
    run.state.assign(product, "b", columns, Cause("tactic", "by hand"))
    run.state.assign(product, "c", columns, Cause("tactic", "by hand"))
    run.cut_all([(x, 0), (y, 1)], "a")
    assert not run.state.conflicts
    assert run.state.factor_of[product.index]["a"] == rows


def test_a_cut_stops_at_a_blocked_node():
    run = engine(chain, f32(8, 8))
    run.state.block(the(run, "exp"), "a")
    run.cut(run.graph.input_nodes[0], "a", 0)
    assert dims(run, "a") == [0, 0, None, None, None]
    run.cut(run.graph.input_nodes[0], "b", 1)
    assert dims(run, "b") == [1] * 5


def test_a_first_axis_stays_where_a_second_tactic_comes_too_late():
    run = engine(lambda w, x: lax.tanh(x @ w), f32(8, 8), f32(16, 8))
    w, x = run.graph.input_nodes
    run.cut(x, "a", 0, "batch")
    run.cut(w, "a", 1, "zero")
    product = the(run, "dot_general")
    assert run.state.dim_on(made(product), "a") == 0
    assert run.state.dim_on(made(w), "a") == 1
    assert run.state.causes[product.index, "a"].tactic == "batch"
    assert count_collectives(lower(run.state).program)["all_gather"] == 1


def test_a_partial_sum_whose_reader_is_cut_is_scattered():
    run = engine(lambda x, w: lax.sin(x @ w), f32(8, 16), f32(16, 4))
    product = the(run, "dot_general")
    run.cut(run.graph.input_nodes[0], "a", 1)
    assert run.state.dim_on(made(product), "a") == -1
    assert run.state.dim_on(made(the(run, "sin")), "a") is None
    assert run.cut(the(run, "sin"), "a", 0) is None
    assert run.state.scattered == {(made(product), "a"): 0}
    counts = count_collectives(lower(run.state).program)
    assert (counts["reduce_scatter"], counts["all_reduce"]) == (1, 0)


def test_a_cut_that_was_written_by_hand_spreads():
    run = engine(chain, f32(8, 8))
    node = the(run, "exp")
    run.state.assign(node, "b", 1, Cause("tactic", "by hand"))
    assert dims(run, "b") == [None, None, 1, None, None]
    run.spread(node, "b")
    assert dims(run, "b") == [1] * 5


def test_state_that_a_step_passes_on_is_cut_as_it_comes():
    found = capture(lambda s, x: (s + x, x.sum()), (f32(8), f32(8)), donated=["s"])
    assert found.ties == {0: 0}
    for seed in (0, 1):
        run = Propagator(State(Graph(found.program, found.ties), MESH))
        run.cut(run.graph.input_nodes[seed], "a", 0)
        assert run.state.dim_on(made(run.graph.input_nodes[0]), "a") == 0


# -- loops ----------------------------------------------------------------------------


def carry(run: Propagator) -> Node:
    """The wire of the carry: the one with all four ends."""
    (wires,) = run.graph.wire_nodes.values()
    (node,) = (
        n
        for n in wires
        if n.wire and n.wire.operand is not None and n.wire.result is not None
    )
    return node


@pytest.mark.parametrize("end", ["init", "reader", "body in", "body out"])
def test_a_cut_of_any_end_of_a_carry_cuts_all_ends(end):
    def fn(c, xs):
        def step(c, x):
            return lax.exp(lax.sin(c)) + x, None

        return lax.tan(lax.scan(step, lax.cos(c), xs)[0])

    run = engine(fn, f32(8, 4), f32(3, 8, 4))
    kind = {"init": "cos", "reader": "tan", "body in": "sin", "body out": "exp"}[end]
    run.cut(the(run, kind), "a", 1)
    node = carry(run)
    assert run.state.factor_of[node.index] == {"a": 1}
    assert len(node.ins) == len(node.outs) == 2
    for value, _ in (*node.ins, *node.outs):
        assert run.state.dim_on(value, "a") == 1
    assert run.state.dim_on(made(run.graph.input_nodes[1]), "a") == 2


@given(steps(8))
def test_all_that_a_wire_makes_is_cut_alike(decisions):
    run = fresh("scan")
    take_all(run, decisions)
    for wires in run.graph.wire_nodes.values():
        for node in wires:
            cuts = set()
            for value, port in node.outs:
                rank = len(run.graph.values[value].shape) - len(node.sizes)
                dims_ = run.state.sharding_at(node, (value, port)).dims
                assert not any(dims_[:rank])
                cuts.add(dims_[rank:])
            assert len(cuts) <= 1


def test_the_dim_that_a_loop_runs_over_cannot_be_cut_inside():
    run = engine(lambda xs: lax.map(lax.sin, xs), f32(4, 8))
    (x,) = run.graph.input_nodes
    run.cut(x, "a", 0)
    assert dims(run, "a").count(None) == len(run.graph.values) - 1
    run.cut(x, "b", 1)
    assert run.state.dim_on(made(the(run, "sin")), "b") == 0


def test_branches_are_cut_as_what_they_choose_from():
    def fn(p, x):
        return lax.cond(p, lax.sin, lax.cos, x)

    run = engine(fn, jax.ShapeDtypeStruct((), jnp.bool_), f32(8))
    run.cut(run.graph.input_nodes[1], "a", 0)
    for kind in ("sin", "cos"):
        assert run.state.dim_on(made(the(run, kind)), "a") == 0
