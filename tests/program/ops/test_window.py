from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.program.ops.letters import f32, letters, rule_for


def _pool(window, strides, padding, init=-np.inf, combine=lax.max, **more):
    return lambda x: lax.reduce_window(
        x, np.float32(init), combine, window, strides, padding, **more
    )


@pytest.mark.parametrize(
    ("window", "strides", "padding", "expected", "special"),
    [
        ((1, 2), (1, 2), "VALID", "a(b~)->ab", set()),
        ((1, 3), (1, 1), "SAME", "ab->ab", {1}),
        ((1, 3), (1, 2), "SAME", "a(b~)->ab", {1}),
        ((1, 3), (1, 1), "VALID", "a-->a-", set()),
        ((2, 16), (2, 1), "SAME", "(a~)c->ac", {2}),
    ],
)
def test_windows_with_aligned_parts_are_split(
    window, strides, padding, expected, special
):
    rule = rule_for(_pool(window, strides, padding), f32(4, 16))
    assert letters(rule) == expected
    assert rule.special == special


def test_only_window_sums_are_linear():
    assert rule_for(_pool((2,), (2,), "VALID"), f32(8)).linear == ()
    total = _pool((2,), (2,), "VALID", 0.0, lax.add)
    assert rule_for(total, f32(8)).linear == (frozenset({0}),)


def test_a_dilated_dim_is_not_split():
    rule = rule_for(_pool((2,), (1,), ((1, 1),), base_dilation=(2,)), f32(8))
    assert letters(rule) == "-->-"


@pytest.mark.parametrize(
    ("init", "combine", "expected"),
    [
        (1.0, lambda a, b: jnp.multiply(a, b), "ab,->ab"),
        (2.0, lambda a, b: jnp.multiply(a, b), "a-,->a-"),
        (2.0, lambda a, b: lax.max(a, b), "ab,->ab"),
        (-np.inf, jnp.logaddexp, "a-,->a-"),
    ],
)
def test_only_known_monoids_exchange_halos(init, combine, expected):
    rule = rule_for(_pool((1, 3), (1, 1), "SAME", init, combine), f32(4, 16))
    assert letters(rule) == expected


def _select_and_scatter_add(window, strides, padding):
    return lambda source, x: lax.select_and_scatter_add_p.bind(
        source,
        x,
        select_prim=lax.ge_p,
        window_dimensions=window,
        window_strides=strides,
        padding=padding,
    )


@pytest.mark.parametrize(
    ("window", "padding", "special"),
    [((1, 2), ((0, 0), (0, 0)), set()), ((1, 3), ((0, 0), (0, 1)), {1})],
)
def test_the_gradient_of_max_pooling_has_its_factors(window, padding, special):
    fn = _select_and_scatter_add(window, (1, 2), padding)
    rule = rule_for(fn, f32(4, 8), f32(4, 16))
    assert letters(rule) == "ab,a(b~)->a(b~)"
    assert rule.special == special
    assert rule.linear == (frozenset({0}),)


def test_tangents_of_max_pooling_are_linear():
    pool = _pool((1, 3), (1, 1), "SAME")
    rule = rule_for(lambda x, t: jax.jvp(pool, (x,), (t,))[1], f32(4, 8), f32(4, 8))
    assert letters(rule) == "ab,ab->ab"
    assert rule.linear == (frozenset({0}),)
