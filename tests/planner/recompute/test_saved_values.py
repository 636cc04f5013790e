"""Saved residuals, against all sets of values that could be saved."""

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
from meshwright.planner.recompute.forward_pass import ForwardPass, cut_points
from meshwright.planner.recompute.saved_values import Residuals, recompute_within
from meshwright.planner.solve.space import Space
from meshwright.program.ir import Op, Value


@st.composite
def residuals(draw):
    """A few ops of up to two operands each; the backward pass reads some results."""
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
    return Residuals(seconds, num_bytes, frozenset(wanted))


def cost_of(residuals, saved, byte_s):
    """Saved bytes at their price, plus the seconds of all recomputed ops."""
    producer = {op.results[0]: op for op in residuals.seconds}
    recomputed, todo = set(), [v for v in residuals.needed if v not in saved]
    while todo:
        value = todo.pop()
        if value not in recomputed:
            recomputed.add(value)
            todo += [v for v in producer[value].operands if v not in saved]
    num_bytes = sum(residuals.num_bytes[v] for v in saved)
    seconds = sum(residuals.seconds[producer[v]] for v in recomputed)
    return byte_s * num_bytes + seconds


@given(residuals(), st.integers(1, 20).map(lambda n: n / 4))
def test_the_minimum_cut_is_the_cheapest_of_all_sets(residuals, byte_s):
    values = [*residuals.num_bytes]
    least = min(
        cost_of(residuals, set(saved), byte_s)
        for size in range(len(values) + 1)
        for saved in itertools.combinations(values, size)
    )
    assert cost_of(residuals, residuals.cheapest(byte_s), byte_s) == pytest.approx(
        least, rel=1e-4
    )


@given(residuals(), st.integers(0, 60))
def test_saved_bytes_stay_within_the_limit_if_any_selection_does(residuals, limit):
    saved, least = residuals.within(limit), residuals.cheapest(1e-6)
    assert residuals.saved_bytes(saved) <= max(limit, residuals.saved_bytes(least))
    assert math.isfinite(residuals.recompute_s(saved))


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


def test_a_plan_that_does_not_fit_is_rematerialized():
    """Plans without it take about 2 GiB and more; the limit is 60 % of that."""
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


def test_loops_save_less_of_each_iteration():
    """Six layers of widths 512 and 2,048: without the wide values a fifth is left."""
    machine = load_machine("tpu-v5e", None, 8)
    captured = mw.partition(looped_step, {"data": 8}).capture(*args())
    space = Space(captured, machine)
    priced = space.price(Mesh({"data": 8}))
    work = space.start(Mesh({"data": 8}))
    mw.data_parallel("data").apply(work)
    choices = read_choices(priced.model, work.state)
    residuals = Residuals.of(ForwardPass(priced, choices, space.op_prices, 2**30))
    now = residuals.saved_bytes(residuals.saved_by_default)
    least = residuals.saved_bytes(residuals.cheapest(1e-6))
    carried = 6 * 4 * ROWS // 8 * WIDTH  # bytes carried into the layers
    assert carried <= least <= 1.4 * carried < 3 * carried <= now
    found = recompute_within(priced, choices, space.op_prices, now - least, 2**30)
    assert found is not None
    assert found[1] == pytest.approx(residuals.recompute_s(residuals.within(least)))


def attending_loss(params, x):
    for w in params:  # scores have 16 times the bytes of x, their softmax 8 times
        weights = jax.nn.softmax((x @ w) @ x.mT)
        x = x + weights @ x
    return (x**2).mean()


def test_cut_points_are_the_values_with_the_fewest_bytes():
    """Attention weights are nearly all live bytes, but the rows of x are fewer bytes."""
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
    residuals = Residuals.of(
        ForwardPass(priced, choices, space.op_prices, 1.5 * weights_bytes)
    )
    least = residuals.saved_bytes(residuals.cheapest(1e-6))
    assert least <= 6 * x_bytes < weights_bytes / 2


class Sizes:
    """Sizes of values that are all stored, one byte per element."""

    def num_bytes(self, value):
        return float(value.shape[0])

    def is_stored(self, value):
        return True


def cut_bytes(sizes, spacing):
    """Stored bytes up to each cut point, in a chain of values of these sizes."""
    values = [Value((size,), "float32") for size in (1, *sizes, 1)]
    ops = [Op("f", (a,), (b,)) for a, b in itertools.pairwise(values)]
    made = list(itertools.accumulate(sizes))
    return [made[ops.index(op)] for op in cut_points(ops, Sizes(), spacing)]


def test_equal_values_have_a_cut_point_per_spacing_but_for_the_last():
    assert cut_bytes([10] * 24, 40) == [40, 80, 120, 160]


@given(st.lists(st.integers(1, 20), min_size=1, max_size=40))
def test_cut_points_of_a_chain_are_about_the_spacing_apart(sizes):
    """The distance is at least the spacing, and not much more than twice of it."""
    spacing = 40
    found, made = cut_bytes(sizes, spacing), [sum(sizes)]
    apart = [b - a for a, b in itertools.pairwise([0, *found])]
    assert all(each >= spacing for each in apart)
    assert all(
        each <= 2 * spacing + 2 * max(sizes) for each in (*apart, made[-1] - sum(apart))
    )


def test_an_error_says_that_nothing_fits_even_with_rematerialization():
    with pytest.raises(MeshwrightError, match="nothing fits"):
        mw.autoplan(step, args(), machine="tpu-v5e", chips=8, memory=1e6, budget_s=10)
