"""What is kept, against every set of values that could be."""

import itertools
import math

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

import meshwright as mw
from meshwright.errors import MeshwrightError
from meshwright.machine import Mesh, load_machine
from meshwright.planner.integer_program.projection import read_choices
from meshwright.planner.recompute.cut_points import cut_points
from meshwright.planner.recompute.saved_values import Residuals, recompute_within
from meshwright.planner.solve.space import Space
from meshwright.program.ir import Op, Value


@st.composite
def waits(draw):
    """A few ops of up to two operands each, some of whose results are read behind."""
    ops, values = [], []
    for _ in range(draw(st.integers(1, 7))):
        chosen = draw(st.sets(st.sampled_from(values), max_size=2)) if values else set()
        made = Value((1,), "float32")
        ops.append(Op("f", tuple(sorted(chosen, key=values.index)), (made,)))
        values.append(made)
    cost = st.one_of(st.integers(0, 9).map(float), st.just(math.inf))
    seconds = {op: draw(cost) for op in ops}
    num_bytes = {v: float(draw(st.integers(1, 9))) for v in values}
    wanted = draw(st.sets(st.sampled_from(values), min_size=1))
    return Residuals(tuple(ops), seconds, num_bytes, frozenset(wanted))


def cost_of(waits, kept, price):
    """Bytes at their price, and seconds of all that has to be made again."""
    maker = {op.results[0]: op for op in waits.ops}
    again, todo = set(), [v for v in waits.needed if v not in kept]
    while todo:
        value = todo.pop()
        if value not in again:
            again.add(value)
            todo += [v for v in maker[value].operands if v not in kept]
    bytes_ = sum(waits.num_bytes[v] for v in kept)
    return price * bytes_ + sum(waits.seconds[maker[v]] for v in again)


@given(waits(), st.integers(1, 20).map(lambda n: n / 4))
def test_the_cut_is_the_cheapest_of_all_sets(waits, price):
    values = [*waits.num_bytes]
    least = min(
        cost_of(waits, set(kept), price)
        for size in range(len(values) + 1)
        for kept in itertools.combinations(values, size)
    )
    assert cost_of(waits, waits.cheapest(price), price) == pytest.approx(
        least, rel=1e-4
    )


@given(waits(), st.integers(0, 60))
def test_what_is_kept_is_no_more_than_may_be(waits, limit):
    kept, least = waits.within(limit), waits.cheapest(1e-6)
    assert waits.saved_bytes(kept) <= max(limit, waits.saved_bytes(least))
    assert math.isfinite(waits.recompute_s(kept))


WIDTH, ROWS = 512, 1 << 18


def loss(params, x):
    for up, down in params:
        x = x + jnp.tanh(x @ up) @ down
    return (x**2).mean()


def step(params, x):
    value, grads = jax.value_and_grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def args(layers=6):
    shapes = (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)
    params = [
        tuple(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes)
        for _ in range(layers)
    ]
    return params, jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32)


def test_what_does_not_fit_is_made_again():
    """Plain plans take some 2 GiB and more; with 1.2 something is computed twice."""
    options = {"machine": "tpu-v5e", "chips": 8, "budget_s": 30}
    free = mw.autoplan(step, args(), **options)
    limit = 0.6 * free.peak_memory_bytes
    found = mw.autoplan(step, args(), memory=limit, **options)
    assert found.peak_memory_bytes <= limit
    assert found.step_time_s < 2 * free.step_time_s
    assert any("recompute" in str(t) for t in found.tactics)


def looped_loss(params, x):
    def block(x, layer):
        up, down = layer
        return x + jnp.tanh(x @ up) @ down, None

    stacked = tuple(jnp.stack(w) for w in zip(*params, strict=True))
    return (jax.lax.scan(block, x, stacked)[0] ** 2).mean()


def looped_step(params, x):
    value, grads = jax.value_and_grad(looped_loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def test_loops_keep_less_of_each_turn():
    """Six layers of 512 and 2,048 wide: without the wide ones a fifth is left."""
    machine = load_machine("tpu-v5e", None, 8)
    captured = mw.partition(looped_step, {"data": 8}).capture(*args())
    space = Space(captured, machine)
    priced = space.price(Mesh({"data": 8}))
    work = space.start(Mesh({"data": 8}))
    mw.data_parallel("data").apply(work)
    choices = read_choices(priced.model, work.state)
    waits = Residuals.under_plan(priced, choices, space.op_prices, 2**30)
    now = waits.saved_bytes(waits.saved_by_default)
    least = waits.saved_bytes(waits.cheapest(1e-6))
    turn = 6 * 4 * ROWS // 8 * WIDTH  # what is carried into each layer
    assert turn <= least <= 1.4 * turn < 3 * turn <= now
    found = recompute_within(priced, choices, space.op_prices, now - least, 2**30)
    assert found is not None
    assert found[1] == pytest.approx(waits.recompute_s(waits.within(least)))


def attending_loss(params, x):
    for w in params:  # scores are 16 times the rows that go in, and their softmax 8
        weights = jax.nn.softmax((x @ w) @ x.mT)
        x = x + weights @ x
    return (x**2).mean()


def test_narrow_places_are_those_of_the_fewest_bytes():
    """What is a little before the narrowest place of a layer may be made again, too.

    Weights of attention are nearly all that is read of what was made before them.
    """
    rows, width = 1024, 64
    params = [jnp.ones((width, width))] * 6
    x = jax.ShapeDtypeStruct((8, rows, width), jnp.float32)
    machine = load_machine("tpu-v3", None, 4)
    captured = mw.partition(jax.grad(attending_loss), {"data": 8}).capture(params, x)
    space = Space(captured, machine)
    priced = space.price(Mesh({"data": 8}))
    work = space.start(Mesh({"data": 8}))
    mw.data_parallel("data").apply(work)
    choices = read_choices(priced.model, work.state)
    x_bytes, weights_bytes = 4 * rows * width, 4 * rows**2
    waits = Residuals.under_plan(priced, choices, space.op_prices, 1.5 * weights_bytes)
    least = waits.saved_bytes(waits.cheapest(1e-6))
    assert least <= 6 * x_bytes < weights_bytes / 2


class Sizes:
    """Of values that are all stored, an element a byte."""

    def num_bytes(self, value):
        return float(value.shape[0])

    def is_stored(self, value):
        return True


def narrow_places(sizes, stretch):
    """Bytes made up to each, in a chain of values of these sizes."""
    values = [Value((size,), "float32") for size in (1, *sizes, 1)]
    ops = [Op("f", (a,), (b,)) for a, b in itertools.pairwise(values)]
    made = list(itertools.accumulate(sizes))
    return [made[ops.index(op)] for op in cut_points(ops, Sizes(), stretch)]


def test_equal_values_are_kept_once_per_stretch_but_for_the_last():
    assert narrow_places([10] * 24, 40) == [40, 80, 120, 160]


@given(st.lists(st.integers(1, 20), min_size=1, max_size=40))
def test_no_stretch_of_a_chain_is_without_a_narrow_place(sizes):
    """None is nearer than a stretch to the last one, nor much farther than two."""
    stretch = 40
    found, made = narrow_places(sizes, stretch), [sum(sizes)]
    apart = [b - a for a, b in itertools.pairwise([0, *found])]
    assert all(each >= stretch for each in apart)
    assert all(
        each <= 2 * stretch + 2 * max(sizes) for each in (*apart, made[-1] - sum(apart))
    )


def test_where_that_does_not_help_it_is_said():
    with pytest.raises(MeshwrightError, match="nothing fits"):
        mw.autoplan(step, args(), machine="tpu-v5e", chips=8, memory=1e6, budget_s=10)
