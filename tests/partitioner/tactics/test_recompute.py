"""What is made again: the same numbers, fewer bytes, and what is said of wrong names."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshwright as mw
from meshwright.errors import MeshwrightError
from meshwright.partitioner.propagate import Graph
from meshwright.partitioner.structure.sites import sites_of
from meshwright.program.rewrite.rematerialization import (
    backward_start,
    rematerialize,
    residuals,
)
from tests.program.ir.verifier import verify

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


def looped_loss(params, x):
    """The same blocks as turns of a loop, with a step's number and a branch in them."""

    def block(carry, layer):
        x, number = carry
        up, down, keep = layer
        wide = mw.tag(jnp.tanh(x @ up), "wide")
        wide = jax.lax.cond(keep, jnp.sin, lambda v: v * number, wide)
        return (x + wide @ down, number + 1), jnp.sum(wide[0])

    up, down = (jnp.stack(w) for w in zip(*params, strict=True))
    keep = jnp.arange(LAYERS) % 2 == 0
    (x, _), sums = jax.lax.scan(block, (x, 1.0), (up, down, keep))
    return (x**2).mean() + sums.sum()


def looped_step(params, x):
    value, grads = jax.value_and_grad(looped_loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def reverse_step(params, x):
    """A loop from the last layer to the first, and what it stacks read as a whole too."""

    def turned_loss(params, x):
        ups, downs = (jnp.stack(w) for w in zip(*params, strict=True))

        def block(x, layer):
            up, down = layer
            wide = mw.tag(jnp.tanh(x @ up), "wide")
            return x + wide @ down, wide

        x, wides = jax.lax.scan(block, x, (ups, downs), reverse=True)
        return (x**2).mean() + jnp.sum(wides[0] ** 2) * 1e-3

    value, grads = jax.value_and_grad(turned_loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


STEPS = [step, looped_step, reverse_step]


@cache
def program(step=step):
    return mw.partition(step, MESH).capture(*args()).program


DATA = mw.data_parallel("data")


def peak(*tactics, step=step):
    params, x = args()
    many = jax.ShapeDtypeStruct(
        (1 << 19, WIDTH), x.dtype
    )  # too much for scratch memory
    plan = mw.partition(step, MESH, tactics).plan(params, many)
    return plan.on("tpu-v5e", donate_state=True).peak_memory_bytes


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("keep", ["add", ["add", "wide"], ["dot_general"]])
def test_the_step_is_the_same(keep, step):
    found = mw.partition(step, MESH, [mw.recompute(keep), DATA])
    assert found.check(*args()).ok


@pytest.mark.parametrize("step", [step, looped_step])
def test_what_is_not_kept_takes_no_memory(step):
    """The turn holds one activation a block instead of one and a wide one."""
    assert peak(mw.recompute("add"), DATA, step=step) < 0.55 * peak(DATA, step=step)


def test_ops_run_again_and_no_others():
    """Each block's wide product and its function once more, behind a barrier each."""

    def count(ops, kind):
        return sum(op.kind == kind for op in ops)

    before = program()
    after = mw.recompute("add").rewrite(before)
    assert count(after.ops, "tanh") == 2 * LAYERS
    again = count(after.ops, "dot_general") - count(before.ops, "dot_general")
    assert LAYERS <= again <= 2 * LAYERS


def test_what_runs_again_waits_for_the_backward_pass():
    """Else compilers run it right after the forward pass, and its results stay live."""
    plan = mw.partition(step, MESH, [mw.recompute("add"), DATA]).plan(*args())
    ops = plan.decided.lowered.program.ops
    made_at = {result: index for index, op in enumerate(ops) for result in op.results}
    turn = min(index for index, op in enumerate(ops) if op.is_recomputed)
    barriers = [
        (index, op)
        for index, op in enumerate(ops)
        if op.kind == "optimization_barrier" and op.is_recomputed
    ]
    assert len(barriers) >= LAYERS
    awaited = [made_at[op.operands[1]] for _, op in barriers]
    assert all(at < index for at, (index, _) in zip(awaited, barriers, strict=True))
    assert awaited == sorted(awaited)  # one layer after another
    assert len({at for at in awaited if at > turn}) >= LAYERS - 1


def test_work_done_twice_is_no_use_of_the_machine():
    """MFU counts the operations of the step as it was written, HFU those that run."""
    plain, again = (
        mw.partition(step, MESH, tactics).plan(*args()).on("tpu-v5e")
        for tactics in ([DATA], [mw.recompute("add"), DATA])
    )
    assert again.mfu * again.step_time_s == pytest.approx(plain.mfu * plain.step_time_s)
    assert plain.hfu == plain.mfu
    before = program()
    counts = [
        sum(op.kind == "dot_general" for op in each.ops)
        for each in (mw.recompute("add").rewrite(before), before)
    ]
    assert again.hfu / again.mfu == pytest.approx(counts[0] / counts[1], rel=0.01)


def test_loops_can_be_kept_as_they_are():
    before = program(looped_step)
    after = mw.recompute(["scan"]).rewrite(before)

    def wires(captured):
        return [len(op.wires) for op in captured.ops if op.kind == "scan"]

    assert wires(after) == wires(before)


def test_it_is_printed_as_it_is_typed():
    assert str(mw.recompute("add")) == "recompute(keep=['add'])"


@settings(max_examples=8)
@given(st.sets(st.integers(0, 30)))
def test_whatever_is_kept_the_program_computes_the_same(numbers):
    before = program()
    turn = backward_start(before)
    values = residuals(before, turn)
    keep = {values[n % len(values)] for n in numbers}
    after = rematerialize(before, keep, turn)
    left = {v for v in residuals(after, turn) if v in values}
    assert left <= keep | {v for op in before.ops if op.has_effect for v in op.results}
    assert_same(before, after)


@settings(max_examples=4)
@given(st.sampled_from([looped_step, reverse_step]), st.sets(st.integers(0, 200)))
def test_whatever_a_loop_keeps_the_program_computes_the_same(step, numbers):
    before = program(step)
    made = [r for op in before.walk() for r in op.results]
    keep = {made[n % len(made)] for n in numbers}
    after = rematerialize(before, keep, backward_start(before))
    verify(after)
    assert_same(before, after)


def assert_same(before, after):
    flat = jax.tree.leaves(args())
    old, new = (run(each, flat) for each in (before, after))
    for one, two in zip(old, new, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5)


def run(captured, flat):
    from meshwright.run.local.execute import run_program

    return run_program(captured, flat)


@pytest.mark.parametrize(
    ("keep", "words"),
    [("nothing_like_it", "names no op"), ("model.py:1 add", "nearest are")],
)
def test_wrong_names_are_said(keep, words):
    with pytest.raises(MeshwrightError, match=words):
        mw.partition(step, MESH, [mw.recompute(keep), DATA]).plan(*args())


def test_a_program_that_keeps_nothing_is_said():
    with pytest.raises(MeshwrightError, match="has no value that a forward pass saves"):
        mw.partition(lambda x: x, MESH, [mw.recompute("add")]).plan(args()[1])


@given(st.sets(st.integers(0, 10_000), min_size=1))
def test_names_mean_the_ops_that_they_were_made_for(numbers):
    graph = graph_of(program())
    ops = [*graph.op_node.values()]
    chosen = {n.index: n for n in (ops[i % len(ops)] for i in numbers)}
    sites = sites_of(graph)
    found = [n.index for name in sites.names(chosen.values()) for n in sites.find(name)]
    assert sorted(found) == sorted(chosen)


@cache
def graph_of(captured):
    return Graph(captured)


def test_some_of_a_site_are_kept():
    """The sums of some blocks, and so the wide values of the others."""
    wide = next(op for op in program().ops if op.kind == "tanh")
    name = f"{wide.source} tanh"
    after = mw.recompute([f"{name} @1-2,5", "add"]).rewrite(program())
    count = sum(op.kind == "tanh" for op in after.ops)
    assert count == 2 * LAYERS - 3


@pytest.mark.parametrize("some", ["@5-3", "@1,9", "@0", "@1-1000000000"])
def test_ranges_that_are_none_are_said(some):
    wide = next(op for op in program().ops if op.kind == "tanh")
    with pytest.raises(MeshwrightError, match="@1 to @5"):
        mw.recompute(f"{wide.source} tanh {some}").rewrite(program())


def test_more_of_a_site_than_there_are_is_said():
    wide = next(op for op in program().ops if op.kind == "tanh")
    with pytest.raises(MeshwrightError, match=f"@1 to @{LAYERS}"):
        mw.recompute(f"{wide.source} tanh @2-{LAYERS + 1}").rewrite(program())
