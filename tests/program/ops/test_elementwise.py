from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.program.ops.letters import f32, last_op, letters, rule_for

FIRST = (frozenset({0}),)
BOTH = (frozenset({0, 1}),)
EITHER = (frozenset({0}), frozenset({1}))


@pytest.mark.parametrize(
    ("fn", "args", "expected"),
    [
        (lax.exp, (f32(4, 8),), "ab->ab"),
        (lax.add, (f32(4, 8), f32(4, 8)), "ab,ab->ab"),
        (lax.add, (f32(4, 8), np.float32(1)), "ab,->ab"),
        (
            lambda x: lax.mul_p.bind(x, np.float32(2), out_dtype=None),
            (f32(4),),
            "a,->a",
        ),
        (lax.add, (f32(4, 8), f32(1, 8)), "ab,-b->ab"),
        (lax.add, (f32(4, 1), f32(1, 8)), "a-,-b->ab"),
        (lax.add, (f32(1, 8), f32(1, 8)), "ab,ab->ab"),
        (lax.clamp, (np.float32(0), f32(4), f32(4)), ",a,a->a"),
        (lax.select_n, (np.bool_(True), f32(4), f32(4)), ",a,a->a"),
        (lax.select_n, (f32(4) > 0, f32(4), f32(4)), "a,a,a->a"),
        (lax.exp, (f32(),), "->"),
    ],
)
def test_every_dim_that_does_not_broadcast_has_the_factor_of_the_result(
    fn, args, expected
):
    assert letters(rule_for(fn, *args)) == expected


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(jnp.int32, "ab->ab"), (jnp.uint8, "ab->ab-"), (jnp.bfloat16, "ab->ab-")],
)
def test_a_bitcast_to_smaller_elements_adds_a_dim_without_factor(dtype, expected):
    rule = rule_for(lambda x: lax.bitcast_convert_type(x, dtype), f32(4, 2))
    assert letters(rule) == expected


def test_a_bitcast_to_larger_elements_drops_a_dim_without_factor():
    pieces = np.zeros((4, 4), np.uint8)
    rule = rule_for(lambda x: lax.bitcast_convert_type(x, jnp.float32), pieces)
    assert letters(rule) == "a-->a"


def test_operands_of_a_barrier_share_no_factors():
    rule = rule_for(lambda x, y: lax.optimization_barrier((x, y)), f32(4, 2), f32(8))
    assert letters(rule) == "a->a"  # of the last: capture makes one op for each


def test_device_put_drops_devices_but_not_memory_spaces():
    device = jax.devices()[0]
    op = last_op(lambda x: jax.device_put(x, device), f32(4))
    rule = rule_for(lambda x: jax.device_put(x, device), f32(4))
    assert rule.local_params is not None
    assert rule.local_params(op, ((2,),), ((2,),))["devices"] == (None,)
    host = last_op(lambda x: jax.device_put(x, jax.memory.Space.Host), f32(4))
    kept = rule.local_params(host, ((2,),), ((2,),))
    assert kept["devices"] == host.params["devices"]


def _to(dtype):
    return lambda x: lax.convert_element_type(x, dtype)


@pytest.mark.parametrize(
    ("fn", "args", "expected"),
    [
        (lax.add, (f32(4), f32(4)), BOTH),
        (lax.sub, (f32(4), f32(4)), BOTH),
        (lax.mul, (f32(4), f32(4)), EITHER),
        (lax.mul, (np.zeros(4, np.int32), np.zeros(4, np.int32)), EITHER),
        (lax.div, (f32(4), f32(4)), ()),
        (lambda x: x / 2.0, (f32(4),), FIRST),
        (lambda x: x / 0.0, (f32(4),), ()),
        (lax.div, (np.zeros(4, np.int32), np.ones(4, np.int32)), ()),
        (lax.neg, (f32(4),), FIRST),
        (lax.complex, (f32(4), f32(4)), BOTH),
        (lax.real, (np.zeros(4, np.complex64),), FIRST),
        (lax.select_n, (f32(4) > 0, f32(4), f32(4)), (frozenset({1, 2}),)),
        (lax.max, (f32(4), f32(4)), ()),
        (lax.square, (f32(4),), ()),
        (_to(jnp.bfloat16), (f32(4),), ()),
        (_to(jnp.float32), (np.zeros(4, jnp.bfloat16),), FIRST),
        (_to(jnp.int32), (f32(4),), ()),
        (_to(jnp.float32), (np.zeros(4, np.int32),), ()),
        (_to(jnp.float8_e4m3fn), (f32(4),), ()),
        (lambda x: lax.reduce_precision(x, 8, 23), (f32(4),), FIRST),
        (lambda x: lax.reduce_precision(x, 5, 3), (f32(4),), ()),
    ],
)
def test_partial_sums_pass_through_linear_ops_only(fn, args, expected):
    assert rule_for(fn, *args).linear == expected


def test_products_that_widen_integers_are_not_linear():
    small = np.zeros(4, np.int8)
    try:
        rule = rule_for(lambda x, y: lax.mul(x, y, out_dtype=jnp.int32), small, small)
    except TypeError:
        pytest.skip("this release of JAX multiplies into the operands' dtype only")
    assert rule.linear == ()
