"""Common subexpression elimination, by what it removes and what it must keep."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback

import meshwright as mw
from meshwright.program.capture import capture
from meshwright.program.ir import Literal, Op, Program, Value
from meshwright.program.rewrite.common_subexpressions import (
    eliminate_common_subexpressions,
)
from tests.program.ir.programs import CASES
from tests.program.ir.verifier import verify

X = np.ones((8, 6), np.float32)
W = np.ones((6, 6), np.float32)


def kinds(fn, *args):
    return [op.kind for op in capture(fn, args).program.walk()]


def norm(x, w):
    return (x - x.mean(0)) @ w


def test_equal_expensive_ops_are_computed_once():
    found = kinds(lambda x, w: jnp.tanh(norm(x, w)) + jnp.sin(norm(x, w)), X, W)
    assert found.count("dot_general") == 1
    assert found.count("reduce_sum") == 1


def test_ops_that_differ_in_an_operand_or_a_parameter_stay():
    def fn(x, w):
        return x @ w, x @ w.T, x.sum(0), x.sum(1)

    found = kinds(fn, X, W)
    assert found.count("dot_general") == found.count("reduce_sum") == 2


def with_literals(*literals):
    """Sums over products of one array with each literal."""
    x = Value((2, 3), "float32")
    ops, outputs = [], []
    for literal in literals:
        product, total = Value((2, 3), "float32"), Value((2,), "float32")
        ops += [
            Op("mul", (x, Literal(literal, "float32")), (product,)),
            Op("reduce_sum", (product,), (total,), {"axes": (1,)}),
        ]
        outputs.append(total)
    return Program((x,), tuple(ops), tuple(outputs))


@pytest.mark.parametrize(
    ("one", "other", "left"),
    [
        (2.0, 2.0, 1),
        (np.float32(np.nan), np.float32(np.nan), 1),
        (np.float32(np.nan), np.float32(-np.nan), 2),
        (np.float32(0.1), np.nextafter(np.float32(0.1), np.float32(1)), 2),
        (0.0, -0.0, 2),
        (1, True, 2),
        (1.0, np.float32(1.0), 2),
    ],
)
def test_literals_are_equal_by_type_and_bits(one, other, left):
    ops = eliminate_common_subexpressions(with_literals(one, other)).ops
    assert [op.kind for op in ops].count("reduce_sum") == left


def test_ops_whose_parameters_cannot_be_compared_stay():
    x = Value((2, 3), "float32")
    tables = np.zeros(10_000), np.arange(10_000) % 9_999
    results = [Value((2,), "float32") for _ in tables]
    ops = [
        Op("reduce_sum", (x,), (r,), {"axes": (1,), "table": table})
        for r, table in zip(results, tables, strict=True)
    ]
    program = Program((x,), tuple(ops), tuple(results))
    assert eliminate_common_subexpressions(program) is program


def test_elementwise_ops_stay_but_count_as_equal_operands():
    def fn(x, w):
        first, second = (jnp.broadcast_to(w[0], x.shape) for _ in range(2))
        return (x * first) @ w, (x * second) @ w, x * second, x * first

    found = kinds(fn, X, W)
    assert found.count("dot_general") == 1
    assert found.count("mul") == 3  # of the second product nobody reads its own


def test_bodies_are_merged_and_effects_and_regions_stay():
    def body(c, _):
        return jnp.sin(c).sum() + jnp.sin(c).sum() + c, None

    def fn(x):
        jax.debug.print("{}", x[0, 0])
        jax.debug.print("{}", x[0, 0])
        ends = [lax.scan(body, x, None, length=2)[0] for _ in range(2)]
        return ends[0] + ends[1]

    found = kinds(fn, X)
    assert found.count("scan") == found.count("reduce_sum") == 2
    assert sum("debug" in kind for kind in found) == 2


def test_callbacks_stay():
    def drawn(x):
        return io_callback(lambda x: x + np.random.rand(), X, x)

    found = kinds(lambda x, w: drawn(x) @ w + drawn(x) @ w, X, W)
    assert found.count("io_callback") == found.count("dot_general") == 2


def test_ops_that_draw_from_a_state_stay():
    def drawn():
        return lax.rng_uniform(0.0, 1.0, (8, 6))

    found = kinds(lambda w: jnp.sort(drawn()) + drawn() @ w + drawn() @ w, W)
    assert found.count("rng_uniform") == 3
    assert found.count("dot_general") == 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_ops_with_results_of_different_types_stay(dtype):
    def fn(x, w):
        one, other = (
            jnp.dot(x, w, preferred_element_type=d) for d in ("float32", dtype)
        )
        return one.sum(), other.sum()

    half = X.astype(jnp.bfloat16), W.astype(jnp.bfloat16)
    assert kinds(fn, *half).count("dot_general") == 1 + (dtype != "float32")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_result_is_valid_and_has_no_common_subexpressions(case):
    program = capture(case.fn, case.args).program
    verify(program)
    assert eliminate_common_subexpressions(program) is program


@pytest.mark.parametrize("tactics", [[], [mw.data_parallel("a")]], ids=["whole", "cut"])
def test_a_step_without_common_subexpressions_computes_the_same(tactics):
    def step(state, x):
        sums = [(jnp.tanh(x @ state["w"]) ** 2).sum() for _ in range(2)]
        noise = [jax.random.normal(jax.random.key(0), (6, 6)) for _ in range(2)]
        sorts = jnp.sort(x, 1)[0], jnp.sort(x, 1, descending=True)[0]
        picked = x.argmax(1), x.argmin(1), lax.top_k(x, 2)[0], lax.top_k(x, 3)[0]
        state = {"w": state["w"] - noise[0], "v": state["w"] + noise[1]}
        return state, x @ state["w"], x @ state["w"], sums, sorts, picked

    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 6)).astype(np.float32)
    state = {name: rng.normal(size=(6, 6)).astype(np.float32) for name in "vw"}
    wanted = step(state, x)
    found = mw.partition(step, {"a": 4}, tactics, donate_argnums=0)(
        jax.tree.map(jnp.asarray, state), x
    )
    for one, other in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)
