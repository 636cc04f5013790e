from __future__ import annotations

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.program.ops.letters import f32, letters, rule_for

EITHER = (frozenset({0}), frozenset({1}))


@pytest.mark.parametrize(
    ("left", "right", "numbers", "expected"),
    [
        ((4, 8), (8, 2), (((1,), (0,)), ((), ())), "ba,ac->bc"),
        ((4, 8), (2, 8), (((1,), (1,)), ((), ())), "ba,ca->bc"),
        ((3, 4, 8), (3, 8, 2), (((2,), (1,)), ((0,), (0,))), "acb,abd->acd"),
        (
            (2, 4, 3, 8),
            (8, 4, 2, 5),
            (((0, 3), (2, 0)), ((1,), (1,))),
            "badc,cabe->ade",
        ),
        ((2, 4, 8), (4, 2, 8), (((2,), (2,)), ((0, 1), (1, 0))), "abc,bac->ab"),
        ((4,), (8,), (((), ()), ((), ())), "a,b->ab"),
        ((8,), (8,), (((0,), (0,)), ((), ())), "a,a->"),
    ],
)
def test_contracted_dims_are_reductions(left, right, numbers, expected):
    fn = partial(lax.dot_general, dimension_numbers=numbers)
    rule = rule_for(fn, f32(*left), f32(*right))
    assert letters(rule) == expected
    assert rule.linear == EITHER
    assert rule.monoid == "sum"


def _product(dtype):
    numbers = (((1,), (0,)), ((), ()))
    return partial(
        lax.dot_general, dimension_numbers=numbers, preferred_element_type=dtype
    )


def test_widened_integers_may_be_summed_but_are_not_linear():
    small = np.zeros((4, 4), np.int8)
    wide = rule_for(_product(jnp.int32), small, small)
    assert letters(wide) == "ba,ac->bc"
    assert wide.linear == ()
    assert rule_for(_product(jnp.int8), small, small).linear == EITHER


def test_contractions_to_eight_bits_or_bools_have_no_reductions():
    small = np.zeros((4, 4), jnp.float8_e4m3fn)
    assert letters(rule_for(_product(jnp.float8_e4m3fn), small, small)) == "a-,-b->ab"
    assert letters(rule_for(_product(jnp.float32), small, small)) == "ba,ac->bc"
    bools = np.zeros((4, 4), bool)
    assert letters(rule_for(_product(None), bools, bools)) == "a-,-b->ab"


def _ragged(dims, ragged, groups, left, right, sizes):
    numbers = lax.RaggedDotDimensionNumbers(dims, [ragged], groups)

    def fn(x, y, s):
        return lax.ragged_dot_general(x, y, s, numbers)

    return rule_for(fn, f32(*left), f32(*right), np.zeros(sizes, np.int32))


def test_ragged_rows_and_groups_are_special():
    rule = _ragged((([1], [1]), ([], [])), 0, [0], (8, 4), (2, 4, 6), (2,))
    assert letters(rule) == "ba,dac,-->bc"
    assert rule.special == {1, 3}
    assert rule.reductions == {0, 3}


def test_ragged_contracted_rows_are_a_reduction_and_groups_new():
    rule = _ragged((([0], [0]), ([], [])), 0, [], (8, 4), (8, 6), (2,))
    assert letters(rule) == "ab,ac,-->dbc"
    assert rule.special == {0, 3}
    assert rule.reductions == {0}


def test_group_sizes_per_batch_row_share_its_factor():
    rule = _ragged((([2], [2]), ([0], [1])), 1, [0], (3, 8, 4), (2, 3, 4, 6), (3, 2))
    assert letters(rule) == "a-b,-abd,a-->a-d"
    rule = _ragged((([1], [1]), ([0], [0])), 1, [], (3, 8, 4), (3, 8, 6), (3, 2))
    assert letters(rule) == "a-c,a-d,a-->-acd"


def test_a_ragged_batch_dim_has_no_factor():
    rule = _ragged((([2], [1]), ([0], [0])), 0, [], (8, 2, 4), (8, 4, 6), (2,))
    assert letters(rule) == "-cb,-bd,-->-cd"


def test_scales_share_the_factors_of_blocks():
    def fn(x, y, s, t):
        return lax.scaled_dot(x, y, lhs_scale=s, rhs_scale=t)

    rule = rule_for(fn, f32(4, 32), f32(32, 8), f32(4, 4), f32(8, 8))
    assert letters(rule) == "a(cde),(cde)b,ac,(cd)b->ab"
    assert rule.least == {4: 2}
