"""What generated programs have found, each reduced to its core."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import meshwright as mw
from tests.fuzz.cuts import Cuts

pytestmark = pytest.mark.filterwarnings("ignore::meshwright.MeshwrightWarning")
"""Numbers are compared here; a strategy may leave much of the work whole."""

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def assert_equal(fn, mesh, tactics, *args, gather="shared") -> None:
    report = mw.partition(fn, mesh, tactics, gather=gather).check(*args)
    assert report.ok, report


def test_a_partial_max_is_never_scattered_as_a_sum():
    def fn(ids, kernel, x):
        y = jnp.tanh(x.at[:, ids].max(x[:, :6]))
        return lax.conv_general_dilated(
            y, kernel, (1,), "SAME", dimension_numbers=("NHC", "HIO", "NHC")
        )

    tactics = [mw.shard({"ids": 0, "kernel": 1}, "b")]
    ids = np.array([0, 3, 3, 7, 11, 5], "int32")
    assert_equal(fn, {"b": 2}, tactics, ids, floats(1, 8, 6), floats(8, 12, 8))


def test_a_permute_lists_its_axes_in_the_order_of_the_mesh():
    def fn(x, ids):
        return mw.tag(x.at[:, ids].multiply(0.7), "scaled")

    tactics = [
        mw.shard({"ids": 0}, "b"),
        mw.shard({"x": mw.FIRST_DIVISIBLE}, "b"),
        mw.shard({"x": 0}, "a"),
    ]
    ids = np.arange(16, dtype="int32") * 3 % 16
    assert_equal(fn, {"a": 2, "b": 4}, tactics, floats(8, 16), ids)


def test_an_axis_must_divide_the_local_extent_after_a_reduce_scatter():
    def fn(x, kernel):
        def loss(k):
            y = lax.conv_general_dilated(
                x, k, (2, 2), [(1, 1), (1, 1)],
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )  # fmt: skip
            return jnp.mean(jnp.sin(y))

        return kernel - 0.1 * jax.grad(loss)(kernel)

    tactics = [
        mw.shard({"kernel": 2, "x": 0}, "a"),
        mw.shard({"kernel": 3, "x": 3}, "b"),
    ]
    assert_equal(fn, {"a": 4, "b": 2}, tactics, floats(4, 8, 8, 4), floats(3, 1, 4, 8))


@pytest.mark.parametrize("tactics", [[("x", 0, "a")], [("n", 0, "a"), ("x", 1, "b")]])
def test_a_while_loop_under_vmap_ends_for_each_element_separately(tactics):
    def count(x, n):
        def goes_on(c):
            return (c[0] < n) & jnp.all(jnp.abs(c[1]) < 100)

        return lax.while_loop(goes_on, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x))

    cuts = [mw.shard({leaf: dim}, axis) for leaf, dim, axis in tactics]
    n = np.arange(8, dtype="int32") % 5
    assert_equal(jax.vmap(count), {"a": 4, "b": 2}, cuts, floats(8, 4), n)


def test_what_lies_beside_a_moved_element_holds_zeros():
    def fn(x):
        def total(x):
            return jnp.sum(jnp.sin(jnp.pad(x, 1, mode="reflect")))

        return jax.grad(total)(x)

    assert_equal(fn, {"a": 8}, [Cuts(151, 16, "a")], floats(6, 6))


def test_a_partial_sum_that_nothing_reads_is_not_reduced():
    def fn(x, y, ids):
        _, second = jnp.split(jnp.einsum("ab,ab->b", x, y), 2)
        return jnp.tanh(second.at[ids].multiply(0.7))

    tactics = [mw.shard({"x": 0}, "a"), mw.shard({"y": 1, "ids": 0}, "b")]
    ids = np.arange(8, dtype="int32") % 4
    assert_equal(fn, {"a": 2, "b": 2}, tactics, floats(8, 8), floats(8, 8), ids)
