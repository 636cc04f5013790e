"""`mw.linearize` on programs of each kind, against JAX and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import meshwright as mw
from meshwright.errors import AutodiffError
from tests.features.autodiff.compare import assert_equal_jax

W = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
X = np.cos(np.arange(12, dtype=np.float32)).reshape(3, 4)


def dense(w, x):
    return jnp.mean(jnp.tanh(x @ w) ** 2)


def scanned(w, x):
    def body(carry, row):
        carry = jnp.tanh(carry @ w + row)
        return carry, (carry.sum(), row)

    return lax.scan(body, x[0], x, reverse=True)


def nested(w, x):
    def outer(carry, row):
        return lax.fori_loop(0, 3, lambda i, c: jnp.sin(c @ w) + row * i, carry), None

    return lax.scan(outer, x[0], x)[0]


def branches(w, x, n):
    cases = [jnp.sin, lambda y: y**3 + y, lambda y: jnp.zeros_like(y) + 2.0]
    return lax.switch(n, cases, x @ w) * n


def dynamic_loop(w, x):
    return lax.while_loop(lambda c: c.sum() < 9.0, lambda c: c + (w * w).sum(), x)


def rematted(w, x):
    return jax.checkpoint(scanned)(w, jnp.sin(x))


@jax.custom_jvp
def doubled(x):
    return jnp.abs(x)


@doubled.defjvp
def _(primals, tangents):
    return doubled(*primals), 2 * tangents[0]


@jax.custom_vjp
def clipped(x, n):
    return x * n


clipped.defvjp(
    lambda x, n: (clipped(x, n), n), lambda n, g: (jnp.clip(g * n, -1, 1), None)
)


def customs(w, x):
    return doubled(x @ w)


def indices(w, x, n):
    return {
        "row": w[n],
        "set": x.at[n].set(2 * x[0]),
        "n": n + 1,
        "sorted": jnp.sort(x),
    }


def solved(w, x):
    return jnp.linalg.solve(w + 4 * jnp.eye(4), x.T)


FUNCTIONS = {
    "products": (dense, W, X),
    "a scan": (scanned, W, X),
    "loops in loops": (nested, W, X),
    "branches by an integer": (branches, W, X, np.int32(1)),
    "a while loop": (dynamic_loop, W, X),
    "remat of a scan": (rematted, W, X),
    "custom_jvp": (customs, W, X),
    "indices": (indices, W, X, np.int32(2)),
    "a linear solve": (solved, W, X),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_equal_those_of_jax(name):
    fn, *args = FUNCTIONS[name]
    assert_equal_jax(fn, *args)


def test_a_cotangent_of_zero_gives_zeros():
    assert_equal_jax(scanned, W, X, zeros=1.0)


def test_reverse_mode_of_a_custom_vjp_is_the_users_even_if_it_is_not_linear():
    lin = mw.linearize(lambda x: clipped(jnp.sin(x), 3), X)
    ours = lin.transpose()(jnp.ones_like(X))
    theirs = jax.vjp(lambda x: clipped(jnp.sin(x), 3), X)[1](jnp.ones_like(X))
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)


def test_forward_mode_of_a_custom_vjp_is_refused_with_its_line():
    lin = mw.linearize(lambda x: clipped(x, 3), X)
    with pytest.raises(
        AutodiffError, match=r"custom_vjp .*test_linearize.py:\d+ has no"
    ):
        lin.linear(X)


def test_reverse_mode_of_a_while_loop_is_refused_with_its_line():
    lin = mw.linearize(dynamic_loop, W, X)
    with pytest.raises(
        AutodiffError,
        match=r"while loop at .*test_linearize.py:\d+ has no reverse mode",
    ):
        lin.transpose()


def test_a_program_transposed_twice_computes_the_same():
    lin = mw.linearize(scanned, W, X)
    again = lin.transpose().transpose()
    ours, theirs = again(2 * W, X), lin.linear(2 * W, X)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_programs_print_with_linear_values_marked():
    lin = mw.linearize(lambda x: jnp.sin(x) * x, X[0])
    assert str(lin.transpose()).splitlines() == [
        "program(%0: f32[4], %1: f32[4], %2: f32[4], @3: f32[4]) {",
        "  @4: f32[4], @5: f32[4] = dup @3",
        "  @6: f32[4] = mul %2, @4",
        "  @7: f32[4] = mul @5, %1",
        "  @8: f32[4] = mul @7, %0",
        "  @9: f32[4] = add_any @8, @6",
        "  return @9",
        "}",
    ]


def test_residuals_have_names_bytes_and_source_lines():
    lin = mw.linearize(dense, W, X)
    saved = [(r.name.split()[-1], r.shape) for r in lin.residuals if not r.is_input]
    assert sorted(saved) == [("mul", (3, 4)), ("one_minus_square", (3, 4))]
    assert all("test_linearize.py" in r.source for r in lin.residuals if not r.is_input)
    assert lin.residual_bytes == 2 * 3 * 4 * 4
    assert {r.name for r in lin.residuals if r.is_input} == {"w", "x"}


@pytest.mark.parametrize("fn", [dense, scanned, nested])
def test_recomputed_residuals_change_no_number(fn):
    plain, lean = mw.linearize(fn, W, X), mw.linearize(fn, W, X, keep="dot_general")
    assert lean.residual_bytes <= plain.residual_bytes
    cotangent = jax.tree.map(jnp.ones_like, plain.result)
    ours, theirs = lean.transpose()(cotangent), plain.transpose()(cotangent)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_invariant_residuals_of_a_scan_are_not_stacked():
    def fn(w, x):
        return lax.scan(lambda c, _: (c * jnp.sin(w), None), x, length=100)[0]

    lin = mw.linearize(fn, X, X)
    shapes = [r.shape for r in lin.residuals]
    assert shapes.count((100, 3, 4)) == 1, str(lin)  # the carry alone


def test_branches_share_places_for_their_residuals():
    def fn(x):
        return lax.cond(x[0, 0] > 0, lambda y: jnp.sin(y), lambda y: jnp.exp(y), x)

    lin = mw.linearize(fn, X)
    assert [r.shape for r in lin.residuals if not r.is_input] == [(3, 4), ()], str(lin)


def test_shapes_are_enough_for_programs_and_residuals_but_not_to_run():
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (W, X)]
    lin = mw.linearize(dense, *shapes)
    assert lin.residual_bytes == 96
    with pytest.raises(AutodiffError, match="given shapes"):
        _ = lin.result


@pytest.mark.parametrize(
    ("cotangent", "wanted"),
    [
        (jnp.ones(2), r"the cotangent of out has shape \(2,\); wanted \(\)"),
        (jnp.ones((), jnp.float16), "the cotangent of out is float16; wanted float32"),
        ("one", "the cotangent of out is 'one'; wanted an array"),
    ],
)
def test_a_cotangent_that_does_not_fit_is_refused(cotangent, wanted):
    with pytest.raises(AutodiffError, match=wanted):
        mw.linearize(dense, W, X).transpose()(cotangent)


def test_the_transposed_map_takes_one_cotangent_of_the_whole_result():
    turned = mw.linearize(dense, W, X).linear.transpose()
    with pytest.raises(AutodiffError, match="was given 2 arguments; wanted one"):
        turned(X, X)


def test_tangents_of_another_structure_are_refused():
    with pytest.raises(AutodiffError, match="the tangent has another structure"):
        mw.linearize(dense, W, X).linear({"w": W}, X, X)


def test_an_op_without_a_derivative_is_refused_with_its_line():
    def fn(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(X.shape, X.dtype), x)

    with pytest.raises(
        AutodiffError, match=r"pure_callback at .*test_linearize.py:\d+ cannot be diff"
    ):
        mw.linearize(fn, X)


def test_gradients_can_be_taken_while_jax_traces():
    @jax.jit
    def gradient(w, x):
        return mw.linearize(dense, w, x).transpose()(jnp.float32(1))

    for a, b in zip(gradient(W, X), jax.grad(dense, (0, 1))(W, X), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
