"""Compiled sparse code against JAX on dense arrays, for each format; needs MLIR."""

import os
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as ss

import meshwright as mw
from meshwright.errors import SparseError

pytestmark = pytest.mark.sparse

FORMATS = ("csr", "csc", "coo", "bsr:4", "dense")
RNG = np.random.default_rng(0)


def dense(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def holed(*shape):
    """An array of which a fifth is not zero."""
    return dense(*shape) * (RNG.random(shape) < 0.2)


def mlp(params, x):
    hidden = jax.nn.relu(x @ params["up"]["kernel"] + params["up"]["bias"])
    return hidden @ params["down"]["kernel"]


def graph_layer(adjacency, x, w):
    degree = jnp.sum(adjacency, 1, keepdims=True)
    return jax.nn.relu(adjacency @ (x @ w) / jnp.maximum(degree, 1.0))


def sddmm(s, a, b):
    return s * (a @ b)


def elementwise(s, d):
    return jnp.tanh(s) * d * 2.0, -s + s * 3, jnp.exp(s), s + d, s / 2 - d


def reductions(s, d):
    return jnp.sum(s), jnp.sum(s, 0), jnp.max(s, 1), jnp.mean(s * d), s.T @ d


def pairs(a, b):
    return a @ b, a * b.T, a + b.T


CASES = {
    "a pruned MLP": (
        mlp,
        "**.kernel",
        (
            {"up": {"kernel": holed(16, 32), "bias": dense(32)},
             "down": {"kernel": holed(32, 8)}},
            dense(12, 16),
        ),
    ),
    "a graph network layer": (
        graph_layer, "adjacency", (abs(holed(16, 16)), dense(16, 8), dense(8, 4))
    ),
    "SDDMM": (sddmm, "s", (holed(16, 12), dense(16, 8), dense(8, 12))),
    "elementwise ops": (elementwise, "s", (holed(12, 16), dense(12, 16))),
    "reductions": (reductions, "s", (holed(12, 16), dense(12, 16))),
    "two sparse operands": (pairs, "?", (holed(12, 16), holed(16, 12))),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", CASES)
def test_sparse_results_equal_dense_ones(name, form):
    fn, pattern, args = CASES[name]
    found = mw.sparse(fn, {pattern: form})
    wanted = jax.tree.leaves(fn(*args))
    for _ in range(2):  # the second call finds memory that is not zero
        for a, b in zip(jax.tree.leaves(found(*args)), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", FORMATS[:-1])
def test_sparse_operands_and_results_are_scipy_arrays(form):
    fn, _, (s, a, b) = CASES["SDDMM"]
    found = mw.sparse(fn, {"s": form, "out": form})(ss.csr_array(s), a, b)
    assert found.format == form.partition(":")[0]
    np.testing.assert_allclose(found.toarray(), fn(s, a, b), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_other_dtypes_are_computed_as_they_are(dtype):
    s, d = holed(8, 12).astype(dtype), (3 * dense(12, 4)).astype(dtype)
    with jax.enable_x64(dtype == "float64"):
        found = mw.sparse(lambda s, d: s @ d, {"s": "csr"})(s, d)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, s @ d, rtol=1e-6)


def test_results_stay_after_later_calls():
    run = mw.sparse(lambda s, d: s @ d, {"s": "csr"})
    s, d = holed(8, 12), dense(12, 4)
    first = run(s, d)
    kept = first.copy()
    for _ in range(20):
        run(2 * s, d)
    np.testing.assert_array_equal(first, kept)


ELEMENTWISE = {
    "exp": jnp.exp,
    "relu": jax.nn.relu,
    "maximum": lambda a: jnp.maximum(a, 0.0),
    "power": lambda a: a**2,
    "leaky": lambda a: a**2 + jnp.where(a > 0, a, 0.1 * a),
    "chosen": lambda a: jnp.where(a != 0, jnp.cos(a), 0),
    "tanh": jnp.tanh,
    "sum": lambda a: a + jnp.sin(a),
    "sum with dense": lambda a: jnp.exp(a) - a,
    "quotient": lambda a: a / (2 + jnp.exp(a)),
}


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr:4"])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_ops_give_sparse_and_dense_results(name, form):
    def fn(a):
        return ELEMENTWISE[name](a)

    a = holed(12, 16)
    for formats in ({"a": form}, {"a": form, "out": form}, {"out": form}):
        found = mw.sparse(fn, formats=formats)(a)
        found = found.toarray() if ss.issparse(found) else found
        np.testing.assert_allclose(found, fn(a), rtol=1e-5, atol=1e-6)


def test_results_that_are_inputs_have_memory_of_their_own():
    a, b = holed(12, 16), dense(16, 8)
    formats = {"a": "csr", "out": "csr"}
    twice = mw.sparse(lambda a: (a, a), formats={"a": "csr", "out.**": "csr"})
    for _ in range(3):
        product = mw.sparse(lambda a, b: a @ b, formats=formats)(a, b)
        same = mw.sparse(lambda a: a, formats=formats)(a)
        turned = mw.sparse(lambda a: a.T, formats=formats)(a)
        first, second = twice(a)
        first.data[:] = 0
        np.testing.assert_allclose(product.toarray(), a @ b, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(same.toarray(), a)
        np.testing.assert_array_equal(turned.toarray(), a.T)
        np.testing.assert_array_equal(second.toarray(), a)


WIDTHS = (1, 2, 3, 7, 16, 33, 100, 128)


@pytest.mark.parametrize("form", FORMATS[:-1])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_products_of_all_widths_equal_dense_ones(form, dtype):
    s = np.rint(4 * holed(24, 40)).astype(dtype)
    s[::3] = 0  # rows without elements
    s[4] = 1  # and a full one
    given = ss.csr_array(s)
    with jax.enable_x64(dtype != "float32"):
        for width in WIDTHS:
            d = np.rint(4 * dense(40, width)).astype(dtype)
            e = np.rint(4 * dense(width, 24)).astype(dtype)
            run = mw.sparse(lambda s, d, e: (s @ d, e @ s, d.T @ s.T), {"s": form})
            right, left, turned = run(given, d, e)
            np.testing.assert_array_equal(right, s @ d)
            np.testing.assert_array_equal(left, e @ s)
            np.testing.assert_array_equal(turned, d.T @ s.T)


def test_products_of_dense_tensors_with_more_dims_equal_dense_ones():
    s, x, v = holed(8, 12), dense(3, 5, 8), dense(8)
    run = mw.sparse(
        lambda s, x, v: (x @ s, jnp.einsum("abk,kj->ajb", x, s), v @ s, s.T @ v),
        {"s": "csr"},
    )
    wanted = x @ s, np.einsum("abk,kj->ajb", x, s), v @ s, s.T @ v
    for found, right in zip(run(ss.csr_array(s), x, v), wanted, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("first", ["csr", "csc", "coo"])
@pytest.mark.parametrize("second", ["csr", "csc", "coo"])
def test_a_product_of_sparse_matrices_is_sparse(first, second):
    a, b = holed(16, 24), holed(24, 12)
    for out in ("csr", "csc", "coo"):
        run = mw.sparse(lambda a, b: a @ b, {"a": first, "b": second, "out": out})
        found = run(ss.csr_array(a), ss.csr_array(b))
        assert found.format == out
        assert found.nnz == (ss.csr_array(a) @ ss.csr_array(b)).nnz
        np.testing.assert_allclose(found.toarray(), a @ b, rtol=1e-5, atol=1e-5)
    chain = mw.sparse(
        lambda a, b, d: a @ b @ d + jnp.tanh(b @ d), {"?": first, "d": "dense"}
    )
    c, d = holed(16, 16), dense(16, 4)
    np.testing.assert_allclose(
        chain(c, c, d), c @ c @ d + np.tanh(c @ d), rtol=1e-4, atol=1e-4
    )


def test_unsorted_and_double_elements_are_added_up():
    rows, columns = np.array([3, 0, 3, 1, 3]), np.array([5, 1, 0, 2, 5])
    s = ss.coo_array((np.arange(1.0, 6, dtype=np.float32), (rows, columns)), (4, 6))
    loose = ss.csr_array(
        (s.data[[1, 3, 0, 2, 4]], columns[[1, 3, 0, 2, 4]], [0, 1, 2, 2, 5]), (4, 6)
    )
    d = dense(6, 3)
    for form in ("csr", "csc", "coo"):
        run = mw.sparse(lambda s, d: (s @ d, jnp.tanh(s)), {"s": form, "out.1": form})
        for given in (s, loose):
            found, map_ = run(given, d)
            np.testing.assert_allclose(found, s.toarray() @ d, rtol=1e-5)
            np.testing.assert_allclose(map_.toarray(), np.tanh(s.toarray()), rtol=1e-5)


def test_corrupt_matrices_are_refused_and_python_goes_on():
    run = mw.sparse(lambda s, d: s @ d, {"s": "csr"})
    s, d = ss.csr_array(holed(8, 12)), dense(12, 4)
    run(s, d)
    s.indices[0] = 1_000_000_000  # also after a call with the same matrix
    for each in (run, mw.sparse(lambda s, d: s @ d)):
        with pytest.raises(SparseError, match="s is not a valid csr matrix"):
            each(s, d)


def test_calls_leave_no_memory_behind():
    run = mw.sparse(lambda s, x: jax.nn.relu(x @ s) @ s, {"s": "csr"})
    s, x = ss.csr_array(holed(256, 256)), dense(512, 256)
    run(s, x)
    before = _resident_bytes()
    for _ in range(200):
        run(s, x)
    assert _resident_bytes() - before < 20e6  # each has 0.5 MB between the products


def _resident_bytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("width", [16, 67])
def test_products_of_dense_operands_equal_xlas(width):
    a, b, x = dense(7, 24), dense(24, width), dense(2, 5, 24)
    run = mw.sparse(
        lambda a, b, x: (a @ b, jnp.einsum("km,kn->nm", a.T, b), x @ b, b.T @ a.T)
    )
    wanted = a @ b, (a @ b).T, x @ b, (a @ b).T
    for found, right in zip(run(a, b, x), wanted, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)


def test_a_matrix_that_is_rather_dense_is_told_once():
    matrix = ss.random_array(
        (400, 300), density=0.499, dtype=np.float32, rng=RNG
    ).tocsr()
    run = mw.sparse(lambda s, d: d @ s.T, {"s": "csr"})
    right = dense(9, 300)
    with pytest.warns(mw.MeshwrightWarning, match="s stores 50% .* 9 columns.* 25%"):
        found = run(matrix, right)
    np.testing.assert_allclose(found, right @ matrix.T.toarray(), rtol=1e-3, atol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(matrix, right)
        mw.sparse(lambda s, d: s @ d, {"s": "csr"})(matrix, dense(300, 1))
