"""What is made again: the same numbers, fewer bytes, and what is said of wrong names."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshwright as mw
from meshwright.errors import MeshwrightError
from meshwright.ir.recompute import recompute, turn_of, waiting

MESH = {"data": 4}
LAYERS, WIDTH, ROWS = 5, 64, 1024


def loss(params, x):
    """Blocks of two products and a residual; what the middle makes is large."""
    for up, down in params:
        x = x + mw.tag(jnp.tanh(x @ up), "wide") @ down
    return (x**2).mean()


def step(params, x):
    value, grads = jax.value_and_grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def args():
    rng = np.random.default_rng(0)

    def array(*shape):
        return jnp.asarray(rng.standard_normal(shape) * 0.1, jnp.float32)

    params = [(array(WIDTH, 8 * WIDTH), array(8 * WIDTH, WIDTH)) for _ in range(LAYERS)]
    return params, array(ROWS, WIDTH)


def program():
    return mw.partition(step, MESH).capture(*args()).program


DATA = mw.data_parallel("data")


def peak(*tactics):
    params, x = args()
    many = jax.ShapeDtypeStruct(
        (1 << 19, WIDTH), x.dtype
    )  # too much for scratch memory
    plan = mw.partition(step, MESH, tactics).plan(params, many)
    return plan.on("tpu-v5e", donate_state=True).peak_memory_bytes


@pytest.mark.parametrize("keep", ["add", ["add", "wide"], ["dot_general"]])
def test_the_step_is_the_same(keep):
    found = mw.partition(step, MESH, [mw.recompute(keep), DATA])
    assert found.check(*args()).ok


def test_what_is_not_kept_takes_no_memory():
    """The turn holds one activation a block instead of one and a wide one."""
    assert peak(mw.recompute("add"), DATA) < 0.55 * peak(DATA)


def test_ops_run_again_and_no_others():
    """Each block's wide product and its function once more, behind a barrier each."""

    def count(ops, kind):
        return sum(op.kind == kind for op in ops)

    before = program()
    after = mw.recompute("add").rewrite(before)
    assert count(after.ops, "tanh") == 2 * LAYERS
    again = count(after.ops, "dot_general") - count(before.ops, "dot_general")
    assert LAYERS <= again <= 2 * LAYERS


def test_work_done_twice_is_no_use_of_the_machine():
    """MFU counts the operations of the step as it was written."""
    plain, again = (
        mw.partition(step, MESH, tactics).plan(*args()).on("tpu-v5e")
        for tactics in ([DATA], [mw.recompute("add"), DATA])
    )
    assert again.mfu * again.step_time_s == pytest.approx(plain.mfu * plain.step_time_s)


def test_it_is_printed_as_it_is_typed():
    assert str(mw.recompute("add")) == "recompute(keep=['add'])"


@settings(max_examples=15)
@given(st.sets(st.integers(0, 30)))
def test_whatever_is_kept_the_program_computes_the_same(numbers):
    before = program()
    turn = turn_of(before)
    values = waiting(before, turn)
    keep = {values[n % len(values)] for n in numbers}
    after = recompute(before, keep, turn)
    left = {v for v in waiting(after, turn) if v in values}
    assert left <= keep | {v for op in before.ops if op.has_effect for v in op.results}
    flat = jax.tree.leaves(args())
    old, new = (run(each, flat) for each in (before, after))
    for one, two in zip(old, new, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5)


def run(captured, flat):
    from meshwright.runtime.execute import run_program

    return run_program(captured, flat)


@pytest.mark.parametrize(
    ("keep", "words"),
    [("nothing_like_it", "names no op"), ("model.py:1 add", "nearest are")],
)
def test_wrong_names_are_said(keep, words):
    with pytest.raises(MeshwrightError, match=words):
        mw.partition(step, MESH, [mw.recompute(keep), DATA]).plan(*args())


def test_a_program_that_keeps_nothing_is_said():
    with pytest.raises(MeshwrightError, match="no value waits"):
        mw.partition(lambda x: x, MESH, [mw.recompute("add")]).plan(args()[1])
