from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.program.ops.letters import f32, letters, rule_for

MONOIDS = {
    lax.reduce_sum: "sum",
    lax.reduce_prod: "prod",
    lax.reduce_max: "max",
    lax.reduce_min: "min",
}


@pytest.mark.parametrize(("reduce", "monoid"), MONOIDS.items())
def test_a_reduced_dim_is_a_reduction_with_its_monoid(reduce, monoid):
    rule = rule_for(lambda x: reduce(x, (1,)), f32(4, 8, 2))
    assert letters(rule) == "abc->ac"
    assert rule.monoid == monoid
    assert rule.reductions == {1}


def test_only_sums_are_linear_reductions():
    assert rule_for(lambda x: lax.reduce_sum(x, (0,)), f32(4)).linear == (
        frozenset({0}),
    )
    assert rule_for(lambda x: lax.reduce_max(x, (0,)), f32(4)).linear == ()


def test_the_maximum_of_bools_is_or_and_the_minimum_is_and():
    flags = np.zeros((4, 8), bool)
    assert rule_for(lambda x: lax.reduce_max(x, (0,)), flags).monoid == "or"
    assert rule_for(lambda x: lax.reduce_min(x, (0,)), flags).monoid == "and"


def test_a_maximum_of_complex_numbers_is_not_split_along_its_dim():
    rule = rule_for(lambda x: lax.reduce_max(x, (0,)), np.zeros((4, 8), np.complex64))
    assert letters(rule) == "-a->a"


def test_a_sum_of_eight_bit_floats_is_not_split():
    rule = rule_for(
        lambda x: lax.reduce_sum(x, (0,)), jnp.zeros((4, 8), jnp.float8_e5m2)
    )
    assert letters(rule) == "-a->a"


def _reduce(computation, init):
    return lambda x: lax.reduce(x, init, computation, (1,))


def test_a_computation_that_is_one_known_op_is_a_monoid():
    rule = rule_for(_reduce(lambda a, b: b + a, np.float32(0)), f32(4, 8))
    assert letters(rule) == "ab,->a"
    assert rule.monoid == "sum"
    nested = rule_for(
        _reduce(lambda a, b: jnp.multiply(a, b), np.float32(1)), f32(4, 8)
    )
    assert nested.monoid == "prod"


@pytest.mark.parametrize(
    ("computation", "init"),
    [
        (lambda a, b: a + b, 3.0),  # counted once per part it would be wrong
        (lambda a, b: a + a * b, 0.0),
        (lambda a, b: a + a, 0.0),
        (lambda a, b: a - b, 0.0),
    ],
)
def test_a_reduction_by_an_unknown_function_is_not_split(computation, init):
    assert (
        letters(rule_for(_reduce(computation, np.float32(init)), f32(4, 8))) == "a-,->a"
    )


def test_an_idempotent_reduction_may_start_from_any_value():
    def fn(x, start):
        return lax.reduce(x, start, lambda a, b: lax.max(a, b), (1,))

    rule = rule_for(fn, f32(4, 8), np.float32(3))
    assert (letters(rule), rule.monoid) == ("ab,->a", "max")


def test_a_joint_reduction_of_several_arrays_is_not_split():
    def fn(x, y):
        zeros = (np.float32(0), np.float32(0))
        return lax.reduce((x, y), zeros, lambda a, b: (a[0] + b[0], a[1] * b[1]), (0,))

    assert letters(rule_for(fn, f32(4, 8), f32(4, 8))) == "-a,-a,,->a,a"


def test_the_dim_of_argmax_is_split_by_comparing_parts():
    rule = rule_for(lambda x: lax.argmax(x, 1, np.int32), f32(4, 8))
    assert letters(rule) == "ab->a"
    assert (rule.monoid, rule.special) == ("min", {1})
