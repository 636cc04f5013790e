from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from meshwright.program.ops.movement.reshape import common_factors
from meshwright.program.rules.factors import RuleFactors
from tests.program.ops.catalogue import OPS_SINCE
from tests.program.ops.letters import f32, last_op, letters, rule_for

STACKS = pytest.mark.skipif(
    jax.__version_info__ < OPS_SINCE["stack"], reason="this jax has no stack"
)


def _reshaped(*shape):
    return partial(lax.reshape, new_sizes=shape)


@pytest.mark.parametrize(
    ("fn", "args", "expected"),
    [
        (lambda x: lax.broadcast_in_dim(x, (2, 4, 3), (1,)), (f32(4),), "b->abc"),
        (lambda x: lax.broadcast_in_dim(x, (4, 3), (0, 1)), (f32(4, 1),), "a-->ab"),
        (lambda x: lax.transpose(x, (2, 0, 1)), (f32(2, 3, 4),), "abc->cab"),
        (lambda x: lax.squeeze(x, (0, 2)), (f32(1, 4, 1),), "-a-->a"),
        (lambda x: lax.rev(x, (1,)), (f32(4, 2),), "ab->ab"),
        (lambda x: lax.slice(x, (0, 1), (4, 3)), (f32(4, 4),), "a(b~)->ab"),
        (lambda x: lax.slice(x, (0, 0), (4, 4), (1, 2)), (f32(4, 4),), "a(b~)->ab"),
        (lambda x: lax.slice(x, (0, 1), (4, 4)), (f32(4, 4),), "a-->a-"),
        (lambda x: lax.slice(x, (0, 1), (4, 2)), (f32(4, 32),), "ab->a-"),
        (lambda x: lax.split(x, (2, 2), 1), (f32(4, 4),), "a(b~)->ab,ab"),
        (
            lambda x: lax.pad(x, np.float32(0), ((0, 0, 0), (1, 0, 0))),
            (f32(4, 4),),
            "a-,->a-",
        ),
        (lambda x, y: lax.concatenate([x, y], 0), (f32(4, 2), f32(2, 2)), "-a,-a->-a"),
        (partial(lax.concatenate_p.bind, dimension=0), (f32(4, 2),), "ab->ab"),
        (lambda x: lax.split(x, (1, 3), 1), (f32(4, 4),), "a-->a-,a-"),
        (lambda x: lax.tile(x, (1, 3)), (f32(4, 2),), "ab->a(cb)"),
        pytest.param(
            lambda x, y: lax.stack([x, y], 1),
            (f32(4, 2), f32(4, 2)),
            "ab,ab->a-b",
            marks=STACKS,
        ),
        pytest.param(
            lambda x: lax.unstack(x, 1), (f32(4, 2),), "a-->a,a", marks=STACKS
        ),
        (lambda: lax.broadcasted_iota(jnp.int32, (4, 2), 1), (), "->ab"),
        (lambda: lax.empty((4, 2), jnp.float32), (), "->ab"),
    ],
)
def test_dims_that_the_result_has_whole_share_a_factor(fn, args, expected):
    assert letters(rule_for(fn, *args)) == expected


@pytest.mark.parametrize(
    ("shape", "target", "expected"),
    [
        ((8, 4), (32,), "ab->(ab)"),
        ((32,), (8, 4), "(ab)->ab"),
        ((8, 4), (2, 16), "(ab)c->a(bc)"),
        ((8, 4), (1, 8, 1, 4), "ab->-a-b"),
        ((8, 1, 4), (8, 4), "a-b->ab"),
        ((2, 6, 5), (12, 5), "abc->(ab)c"),
        ((2, 3), (3, 2), "--->--"),
        ((2, 3, 4), (3, 2, 4), "--a->--a"),
        ((4, 6), (6, 4), "(a~)-->(a~)-"),
        ((), (1, 1), "->--"),
        ((0, 4), (4, 0), "--->--"),
    ],
)
def test_a_reshape_finds_common_factors(shape, target, expected):
    assert letters(rule_for(_reshaped(*target), f32(*shape))) == expected


def test_a_reshape_reads_operand_dims_in_the_given_order():
    fn = partial(lax.reshape, new_sizes=(8, 8), dimensions=(1, 0, 2))
    assert letters(rule_for(fn, f32(4, 8, 2))) == "bac->a(bc)"


def test_a_local_reshape_has_the_local_shape_as_parameter():
    op = last_op(_reshaped(2, 16), f32(8, 4))
    rule = rule_for(_reshaped(2, 16), f32(8, 4))
    assert rule.local_params is not None
    assert rule.local_params(op, ((4, 4),), ((1, 16),))["new_sizes"] == (1, 16)


_SHAPES = st.lists(st.integers(1, 12), min_size=1, max_size=4)


@st.composite
def _same_size(draw):
    source = draw(_SHAPES)
    rest, target = math.prod(source), []
    while rest > 1 and len(target) < 4:
        n = draw(st.sampled_from([n for n in range(1, rest + 1) if rest % n == 0]))
        target.append(n)
        rest //= n
    return tuple(source), (*target, rest)


@given(_same_size())
def test_chunks_of_a_common_factor_have_the_same_elements(shapes):
    """Each factor that may be cut, after the factors more major in its dim."""
    source, target = shapes
    factors = RuleFactors()
    sides = common_factors(factors, source, target)
    for factor, size in enumerate(factors.sizes):
        if factor in factors.least:
            continue
        majors = {
            f
            for dims in sides
            for fs in dims
            if factor in fs
            for f in fs[: fs.index(factor)]
        }
        index = [
            _indices(shape, dims, factors.sizes, {factor, *majors})
            for shape, dims in zip(shapes, sides, strict=True)
        ]
        assert size > 1
        np.testing.assert_array_equal(index[0], index[1])


def _indices(shape, dims, sizes, cut):
    """For each element in row-major order, the digits of the cut factors."""
    grids = np.indices(shape).reshape(len(shape), -1)
    digits = {}
    for grid, factors, extent in zip(grids, dims, shape, strict=True):
        below = extent
        for f in factors:
            below //= sizes[f]
            digits[f] = grid // below % sizes[f]
    return [digits[f] for f in sorted(cut)]


_raw_slice = partial(lax.dynamic_slice_p.bind, slice_sizes=(4, 2))


def test_a_dim_that_is_sliced_at_run_time_is_a_reduction():
    rule = rule_for(_raw_slice, f32(4, 8), np.int32(0), np.int32(0))
    assert letters(rule) == "ab,,->a-"
    assert rule.special == {1}
    assert rule.reductions == {1}


def test_bools_sliced_at_run_time_are_not_summed():
    rule = rule_for(_raw_slice, f32(4, 8) > 0, np.int32(0), np.int32(0))
    assert letters(rule) == "a-,,->a-"


def test_rules_of_keys_have_no_reductions_and_no_exchange():
    keys = jax.random.split(jax.random.key(0), 8)
    sliced = partial(lax.dynamic_slice_p.bind, slice_sizes=(2,))
    assert letters(rule_for(sliced, keys, np.int32(0))) == "-,->-"
    assert letters(rule_for(partial(lax.rev, dimensions=(0,)), keys)) == "-->-"


def test_an_update_has_no_factor_along_the_dim_that_it_changes():
    fn = lax.dynamic_update_slice_p.bind
    rule = rule_for(fn, f32(4, 8), f32(4, 2), np.int32(0), np.int32(0))
    assert letters(rule) == "ab,a-,,->ab"
    assert rule.special == {1}
    assert rule.linear == (frozenset({0, 1}),)


def test_padding_by_zero_is_linear_and_by_other_values_is_not():
    config = ((1, 0, 0),)
    zero = rule_for(lambda x: lax.pad(x, np.float32(0), config), f32(4))
    other = rule_for(lambda x: lax.pad(x, np.float32(1), config), f32(4))
    assert zero.linear == (frozenset({0}),)
    assert other.linear == (frozenset({0, 1}),)


def test_a_local_slice_has_the_local_extent_as_limit():
    fn = partial(lax.slice, start_indices=(0, 1), limit_indices=(8, 3))
    op, rule = last_op(fn, f32(8, 4)), rule_for(fn, f32(8, 4))
    assert rule.local_params is not None
    local = rule.local_params(op, ((2, 4),), ((2, 2),))
    assert local["limit_indices"] == (2, 3)


def test_reversed_dims_and_dims_of_iota_are_special():
    assert rule_for(lambda x: lax.rev(x, (1,)), f32(4, 2)).special == {1}
    assert rule_for(lambda: lax.iota(jnp.int32, 8)).special == {0}
