"""Partial sums travel through linear ops as long as that costs no more."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import meshwright as mw
from meshwright.partitioner.lower import count_collectives, lower
from meshwright.partitioner.propagate import PartialSums, Propagator
from tests.partitioner.propagate.programs import engine, f32, made, the

A = f32(8, 8)


def cut(fn, args, **dims: int) -> Propagator:
    """An engine with some arguments (`_0` is the first) cut along an axis."""
    run = engine(fn, *args)
    seeds = [(run.graph.input_nodes[int(k[1:])], d) for k, d in dims.items()]
    run.cut_all(seeds, "a")
    return run


def sums(run: Propagator) -> int:
    """How many all-reduces the device program runs; it has no other collective."""
    counts = count_collectives(lower(run.state).program)
    assert sum(counts.values()) == counts["all_reduce"]
    return counts["all_reduce"]


def partial(run: Propagator, kind: str, which: int = 0) -> bool:
    return PartialSums(run.state).is_partial(made(the(run, kind, which)), "a")


def passed_on(run: Propagator, kind: str, which: int = 0) -> bool:
    return PartialSums(run.state).is_passed_on(made(the(run, kind, which)), "a")


def test_two_products_that_are_added_are_summed_once():
    run = cut(lambda a, w, b, v: lax.sin(a @ w + b @ v), [A] * 4, _0=1, _2=1)
    assert passed_on(run, "dot_general", 0)
    assert passed_on(run, "dot_general", 1)
    assert partial(run, "add")
    assert not passed_on(run, "add")
    assert sums(run) == 1


def test_a_product_added_to_what_is_whole_is_summed_before():
    run = cut(lambda x, a, w: lax.sin(x + a @ w), [A] * 3, _1=1)
    assert not passed_on(run, "dot_general")
    assert not partial(run, "add")
    assert sums(run) == 1


@pytest.mark.parametrize("is_first", [True, False])
def test_a_whole_addend_between_partial_ones_is_made_partial(is_first):
    def fn(x, a, w, b, v):
        one, two = a @ w, b @ v
        return lax.sin((x + one) + two if is_first else (one + x) + two)

    run = cut(fn, [A] * 5, _1=1, _3=1)
    assert sums(run) == 1
    assert partial(run, "add", 0)
    assert partial(run, "add", 1)
    value = made(the(run, "add", 0))
    assert not PartialSums(run.state).is_partial(value, "a", is_strict=True)
    node = the(run, "add", 0)
    assert PartialSums(run.state).addends(node, "a") == {0, 1}


def test_a_zero_is_a_partial_sum_of_zero():
    run = cut(lambda a, w, p: lax.sin(jnp.where(p, a @ w, 0.0)), (A, A, bools()), _0=1)
    assert passed_on(run, "dot_general")
    assert partial(run, "select_n")
    assert sums(run) == 1


def test_another_constant_is_not_a_partial_sum():
    run = cut(lambda a, w, p: lax.sin(jnp.where(p, a @ w, 1.0)), (A, A, bools()), _0=1)
    assert not passed_on(run, "dot_general")
    assert not partial(run, "select_n")


def test_zeros_are_known_literal_or_made():
    run = engine(lambda x: (x + 0.0, x + jnp.zeros((8, 8)), x + jnp.ones((8, 8))), A)
    partial_sums = PartialSums(run.state)
    known = [
        partial_sums.routes.is_zero(node.op.operands[1])
        for node in run.graph.op_node.values()
        if node.label == "add"
    ]
    assert known == [True, True, False]


@pytest.mark.parametrize(("reduce", "is_sum"), [(jnp.sum, True), (jnp.max, False)])
def test_a_max_is_not_passed_on(reduce, is_sum):
    run = cut(lambda x: -reduce(x, axis=0), [A], _0=0)
    kind = "reduce_sum" if is_sum else "reduce_max"
    assert partial(run, kind) is is_sum
    assert partial(run, "neg") is is_sum
    assert sums(run) == 1


def test_a_sum_with_a_reader_that_is_not_linear_is_taken_at_once():
    def fn(a, w):
        y = a @ w
        return lax.sin(y), -y

    run = cut(fn, [A] * 2, _0=1)
    assert partial(run, "dot_general")
    assert not passed_on(run, "dot_general")
    assert not partial(run, "neg")
    assert sums(run) == 1


def test_a_sum_that_readers_would_make_larger_is_taken_at_once():
    run = cut(lambda a, w, v: lax.sin((a @ w) @ v), (A, A, f32(8, 16)), _0=1)
    assert not passed_on(run, "dot_general")
    run = cut(lambda a, w, v: lax.sin((a @ w) @ v), (A, A, f32(8, 4)), _0=1)
    assert passed_on(run, "dot_general")
    assert sums(run) == 1


def test_an_output_is_summed_even_if_it_is_read_too():
    run = cut(lambda a, w: (lambda y: (y, -y))(a @ w), [A] * 2, _0=1)
    assert not passed_on(run, "dot_general")
    assert sums(run) == 1


def test_a_product_of_two_partial_sums_is_not_passed_on():
    run = cut(lambda x, y: lax.sin(x.sum(0) * y.sum(0)), [A] * 2, _0=0, _1=0)
    assert not partial(run, "mul")
    assert sums(run) == 2


@pytest.mark.parametrize(("num_cut", "count"), [(4, 1), (2, 1), (1, 1)])
def test_norms_of_many_tensors_that_are_joined_are_summed_together(num_cut, count):
    """Whole norms among them are counted on one device, if at least half are partial."""

    def fn(ws):
        return jnp.sqrt(jnp.stack([(w**2).sum() for w in ws]).sum())

    weights = [np.full((8, i + 1), i + 1.0) for i in range(4)]
    cuts = {f"ws.{i}": 0 for i in range(num_cut)}
    step = mw.partition(fn, {"a": 4}, [mw.shard(cuts, "a")])
    assert step.plan(weights).counts["all_reduce"] == count
    assert step.check(weights).ok


def test_few_partial_values_among_whole_ones_are_summed_before_they_are_joined():
    def fn(ws):
        return jnp.stack([w.sum(0) for w in ws])

    step = mw.partition(fn, {"a": 4}, [mw.shard({"ws.0": 0, "ws.1": 0}, "a")])
    assert step.plan([f32(8, 2)] * 5).counts["all_reduce"] == 2
    assert step.plan([f32(8, 2)] * 4).counts["all_reduce"] == 1


@pytest.mark.parametrize(
    ("by", "is_linear"),
    [(lambda y, c: y / 2.0, True), (lambda y, c: y / c, False)],
    ids=["a literal", "a value"],
)
def test_a_quotient_is_passed_on_by_a_literal_only(by, is_linear):
    run = cut(lambda a, w, c: lax.sin(by(a @ w, c)), (A, A, f32()), _0=1)
    assert partial(run, "div") is is_linear
    assert passed_on(run, "dot_general") is is_linear
    assert sums(run) == 1


@pytest.mark.parametrize(
    ("made_in", "to"),
    [
        (jnp.float32, jnp.bfloat16),
        (jnp.float32, jnp.int32),
        (jnp.int32, jnp.float32),
        (jnp.float16, jnp.bfloat16),
        (jnp.bfloat16, jnp.float32),  # exact, but larger
    ],
)
def test_conversions_that_round_or_grow_are_not_passed_on(made_in, to):
    x = jax.ShapeDtypeStruct((8, 8), made_in)
    run = cut(lambda x: lax.reduce_sum(x, (0,)).astype(to) * 2, [x], _0=0)
    assert partial(run, "reduce_sum")
    assert not partial(run, "convert_element_type")
    assert not partial(run, "mul")
    assert sums(run) == 1


@pytest.mark.parametrize("is_narrow", [True, False])
def test_a_narrowing_between_two_ops_parts_them(is_narrow):
    def fn(a, w):
        y = a @ w
        return -(y.astype(jnp.bfloat16) if is_narrow else y)

    run = cut(fn, [A] * 2, _0=1)
    assert partial(run, "neg") is not is_narrow
    assert passed_on(run, "dot_general") is not is_narrow
    assert sums(run) == 1


# -- loops ----------------------------------------------------------------------------


def accumulate(read=lambda total: total):
    def fn(w, xs):
        def step(total, x):
            return read(total) + x.T @ w, None

        return lax.scan(step, jnp.zeros((8, 8)), xs)[0]

    return fn


XS = f32(5, 16, 8)
W = f32(16, 8)


def carry_wire(run: Propagator):
    (wires,) = run.graph.wire_nodes.values()
    (node,) = (n for n in wires if n.wire.result is not None)
    return node


def test_what_a_loop_adds_up_is_summed_after_it():
    run = cut(accumulate(), (W, XS), _1=1)
    assert PartialSums(run.state).loop_partial(carry_wire(run), "a")
    assert not PartialSums(run.state).loop_partial(carry_wire(run), "b")
    assert sums(run) == 1


def test_a_total_that_the_loop_reads_is_summed_each_time():
    run = cut(accumulate(lax.sin), (W, XS), _1=1)
    assert not PartialSums(run.state).loop_partial(carry_wire(run), "a")
    assert sums(run) == 5


def test_a_total_that_starts_at_a_whole_value_is_passed_on_all_the_same():
    def fn(start, w, xs):
        return lax.scan(lambda c, x: (c + x.T @ w, None), start, xs)[0]

    run = cut(fn, (A, W, XS), _2=1)
    assert PartialSums(run.state).loop_partial(carry_wire(run), "a")
    assert sums(run) == 1


@pytest.mark.parametrize("start", [0.0, 1.5])
def test_a_total_that_starts_at_a_number_is_passed_on_too(start):
    def fn(xs):
        return lax.scan(lambda c, x: (c + x.sum(), None), start, xs)[0]

    run = cut(fn, (XS,), _0=1)
    assert PartialSums(run.state).loop_partial(carry_wire(run), "a")
    assert sums(run) == 1


def accumulate_twice(w, ys):
    """What an inner loop adds up is added up by an outer one: gradients in turns."""

    def outer(total, xs):
        inner = lax.scan(lambda c, x: (c + x.T @ w, None), jnp.zeros((8, 8)), xs)[0]
        return total + inner, None

    return lax.scan(outer, jnp.zeros((8, 8)), ys)[0]


def test_what_loops_in_loops_add_up_is_summed_once():
    run = cut(accumulate_twice, (W, f32(3, 5, 16, 8)), _1=2)
    assert sums(run) == 1


def test_loops_in_loops_that_add_up_partial_sums_equal_the_original():
    draw = np.random.default_rng(0).normal
    args = draw(size=(16, 8)), draw(size=(3, 5, 16, 8))
    step = mw.partition(accumulate_twice, {"a": 4}, [mw.shard({"ys": 2, "w": 0}, "a")])
    assert step.plan(*args).counts["all_reduce"] == 1
    assert step.check(*args).ok


def test_of_an_inner_total_that_the_outer_loop_reads_there_is_a_sum_each_time():
    def fn(w, ys):
        def outer(total, xs):
            inner = lax.scan(lambda c, x: (c + x.T @ w, None), jnp.zeros((8, 8)), xs)[0]
            return total + jnp.sin(inner), None

        return lax.scan(outer, jnp.zeros((8, 8)), ys)[0]

    assert sums(cut(fn, (W, f32(3, 5, 16, 8)), _1=2)) == 3


def test_the_carry_of_a_while_loop_is_never_partial():
    def fn(w, x):
        def body(c):
            return c[0] + 1, c[1] + x.T @ w

        return lax.while_loop(lambda c: c[0] < 3, body, (0, jnp.zeros((8, 8))))[1]

    run = cut(fn, (W, W), _0=0)
    partial_sums = PartialSums(run.state)
    (wires,) = run.graph.wire_nodes.values()
    assert not any(partial_sums.loop_partial(n, axis) for n in wires for axis in "ab")


# -- answers --------------------------------------------------------------------------


def test_answers_follow_the_state_as_it_grows_and_shrinks():
    run = engine(lambda a, w: -(a @ w), A, A)
    partial_sums, neg = PartialSums(run.state), made(the(run, "neg"))
    mark = run.state.mark()
    for _ in range(2):
        assert not partial_sums.is_partial(neg, "a")
        run.cut(run.graph.input_nodes[0], "a", 1)
        assert partial_sums.is_partial(neg, "a")
        run.state.rollback(mark)
    assert not partial_sums.is_partial(neg, "a")
    run.cut(run.graph.input_nodes[0], "a", 0)
    assert not partial_sums.is_partial(neg, "a")


def test_a_rollback_forgets_that_a_loop_was_partial():
    run = engine(accumulate(), W, XS)
    partial_sums, node = PartialSums(run.state), carry_wire(run)
    mark = run.state.mark()
    run.cut(run.graph.input_nodes[1], "a", 1)
    assert partial_sums.loop_partial(node, "a")
    run.state.rollback(mark)
    assert not partial_sums.loop_partial(node, "a")
    assert not partial_sums.is_partial(made(the(run, "add")), "a")


def test_what_is_scattered_is_partial_no_more():
    run = cut(lambda a, w: lax.sin(-(a @ w)), [A] * 2, _0=1)
    value = made(the(run, "neg"))
    partial_sums = PartialSums(run.state)
    assert partial_sums.is_partial(value, "a")
    run.state.scatter(value, "a", 0)
    assert not partial_sums.is_partial(value, "a")
    assert not partial_sums.is_passed_on(value, "a")


def bools():
    return jax.ShapeDtypeStruct((8, 8), jnp.bool_)


def test_a_sum_of_very_many_addends_needs_no_deep_recursion():
    def fn(x, w):
        total = 0.0
        for i in range(1500):
            total = total + (x @ w).sum() * float(i)
        return total

    step = mw.partition(fn, {"m": 2}, [mw.shard({"x": 1}, axis="m")])
    assert step.plan(f32(4, 4), f32(4, 4)).counts["all_reduce"] == 1
