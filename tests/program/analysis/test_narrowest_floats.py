"""The narrowest float on the way to an output: through loops, branches and casts."""

import jax
import jax.numpy as jnp
from jax import lax

from meshwright.program.analysis.narrowest_floats import narrowest_floats
from meshwright.program.capture import capture

BITS = {"float32": 32, "bfloat16": 16, "float16": 16}


def coarseness(dtype):
    return -BITS.get(dtype, 64)


def found(fn, *dtypes):
    args = [jax.ShapeDtypeStruct((4, 4), dtype) for dtype in dtypes]
    return [-n for n in narrowest_floats(capture(fn, args).program, coarseness)]


def test_a_cast_back_does_not_hide_a_narrow_product():
    def fn(x, w):
        half = (x.astype(jnp.bfloat16) @ w).astype(jnp.float32)
        return half + x, x * 2, half.argmax()

    assert found(fn, "float32", "bfloat16") == [16, 32, 16]


def test_a_carry_of_a_loop_is_as_narrow_as_what_is_added_to_it():
    def fn(x, w):
        def body(carry, row):
            first, second, third = carry
            return (second, third, row.astype(jnp.float32)), first

        zero = jnp.zeros(4, jnp.float32)
        (first, *_), stacked = lax.scan(body, (zero, zero, zero), w)
        return first, stacked, x

    assert found(fn, "float32", "float16") == [16, 16, 32]


def test_branches_and_rematted_regions_count():
    def fn(x, w):
        chosen = lax.cond(x[0, 0] > 0, lambda: x, lambda: w.astype(jnp.float32))
        return chosen, jax.checkpoint(jnp.tanh)(x), jax.checkpoint(jnp.sin)(chosen)

    assert found(fn, "float32", "bfloat16") == [16, 32, 16]
