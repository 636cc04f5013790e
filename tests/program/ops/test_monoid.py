from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from meshwright.program.ops.arithmetic.reduction import identity_of, integer_range

COMBINE = {
    "sum": jnp.add,
    "prod": jnp.multiply,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "and": jnp.bitwise_and,
    "or": jnp.bitwise_or,
    "xor": jnp.bitwise_xor,
}


BITWISE = ("and", "or", "xor")
ORDERED = ("max", "min")
ARITHMETIC = ("sum", "prod", *ORDERED)


@pytest.mark.parametrize(
    ("dtypes", "monoids"),
    [
        (("bool",), (*BITWISE, *ORDERED)),
        (("uint8", "int16", "int32"), (*BITWISE, *ARITHMETIC)),
        (("float32", "bfloat16"), ARITHMETIC),
    ],
)
def test_an_identity_changes_nothing(dtypes, monoids):
    for dtype in dtypes:
        values = jnp.asarray([0, 1, 0, 1] if dtype == "bool" else [0, 1, 5, 100], dtype)
        for monoid in monoids:
            neutral = jnp.asarray(identity_of(monoid, dtype), dtype)
            np.testing.assert_array_equal(COMBINE[monoid](values, neutral), values)


def test_complex_numbers_and_eight_bit_floats_have_no_identity_of_max():
    assert identity_of("max", "complex64") is None
    assert identity_of("min", "float8_e4m3fn") is None
    assert identity_of("sum", "complex64") == 0


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64"])
def test_integer_ranges_equal_those_of_numpy(dtype):
    info = np.iinfo(dtype)
    assert integer_range(dtype) == (info.min, info.max)
