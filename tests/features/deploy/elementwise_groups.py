"""Groups of elementwise ops: a sample to deploy, and edge values to call it with."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.features.deploy.edge_values import (
    BOOLS,
    BYTES,
    EDGE,
    INF,
    INTEGERS,
    NAN,
    OTHER_BYTES,
    SHIFTS,
    SMALL,
)
from tests.features.deploy.op_functions import (
    INT_PAIRS,
    INTS,
    binary,
    cast,
    unary,
)

ELEMENTWISE = {
    "round": unary(
        jnp.round, lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)
    ),
    "fake quantization": unary(
        lambda x: jnp.clip(jnp.round(x / 0.5), -8, 7) * 0.5, lambda x: jnp.rint(x * 2)
    ),
    "floor and ceil": unary(
        jnp.floor, jnp.ceil, jnp.trunc, jnp.sign, jnp.abs, jnp.negative
    ),
    "exponentials": unary(jnp.exp, jnp.exp2, jnp.expm1, jax.nn.sigmoid, jnp.tanh),
    "logarithms": unary(jnp.log, jnp.log1p, jnp.log2, jnp.log10),
    "log1p of small and large": unary(
        jnp.log1p,
        calls=(
            np.float32(
                [1e30, 3e38, -1, -0.5, -2, 1e-10, -1e-10, 16777216, 1e7, 1e-3, INF, NAN]
            ),
        ),
    ),
    "roots": unary(jnp.sqrt, lax.rsqrt, jnp.cbrt, jnp.square, jnp.reciprocal),
    "powers": unary(
        lambda x: x**2,
        lambda x: x**3,
        lambda x: x**-1,
        lambda x: x**-2,
        lambda x: x**0.5,
    ),
    "trigonometry": unary(
        jnp.sin,
        jnp.cos,
        jnp.tan,
        calls=(EDGE[:9].repeat(2)[:12], np.linspace(-50, 50, 12, dtype=np.float32)),
    ),
    "inverse trigonometry": unary(jnp.arcsin, jnp.arccos, jnp.arctan),
    "hyperbolic": unary(
        jnp.sinh,
        jnp.cosh,
        jnp.arcsinh,
        jnp.arctanh,
        lambda x: jnp.arccosh(jnp.abs(x) + 1),
    ),
    "error functions": unary(
        jax.scipy.special.erf, jax.scipy.special.erfc, jax.scipy.special.erfinv
    ),
    "activations": unary(
        jax.nn.relu,
        jax.nn.gelu,
        jax.nn.silu,
        jax.nn.softplus,
        jax.nn.elu,
        jax.nn.hard_swish,
        jax.nn.leaky_relu,
    ),
    "exact gelu": unary(
        lambda x: jax.nn.gelu(x, approximate=False), jax.nn.log_sigmoid, jax.nn.mish
    ),
    "is finite": unary(jnp.isfinite, jnp.isinf, jnp.isnan, jnp.isposinf, jnp.isneginf),
    "nan to num": unary(jnp.nan_to_num, lambda x: jnp.where(jnp.isnan(x), 0.0, x)),
    "add": binary(jnp.add, jnp.subtract, jnp.multiply),
    "divide": binary(jnp.divide),
    "maximum and minimum": binary(jnp.maximum, jnp.minimum),
    "clip": unary(lambda x: jnp.clip(x, -1.5, 2.5), jax.nn.relu6, jax.nn.hard_tanh),
    "remainders": binary(
        lax.rem,
        jnp.remainder,
        jnp.fmod,
        calls=(
            (EDGE, np.full_like(EDGE, 1.5)),
            (
                np.float32([-7.5, 7.5, -0.25, 5, -5, 3, -3, 1, -1, 8, -8, 0]),
                np.float32([2, -2, 3, 3, 3, -3, -3, 0.3, 0.3, INF, INF, 2]),
            ),
            (EDGE, EDGE[::-1].copy()),
        ),
    ),
    "power of two arrays": binary(
        jnp.power,
        calls=(
            (
                np.float32([-2, -2, 0, 0, 2, NAN, INF, -INF, 1, 0.5, -0.5, 3]),
                np.float32([2, 3, 0, -1, 0.5, 0, -1, 3, NAN, INF, 2, -INF]),
            ),
        ),
    ),
    "arctan2": binary(jnp.arctan2, jnp.hypot, jnp.logaddexp),
    "sign bits": binary(jnp.copysign, lambda x, y: jnp.signbit(x)),
    "comparisons": binary(
        jnp.equal,
        jnp.not_equal,
        jnp.less,
        jnp.less_equal,
        jnp.greater,
        jnp.greater_equal,
    ),
    "select": binary(
        lambda x, y: jnp.where(x > y, x, y), lambda x, y: jnp.where(x > 0, 1.0, y)
    ),
    "logic": binary(
        jnp.logical_and,
        jnp.logical_or,
        jnp.logical_xor,
        lambda x, y: ~x,
        jnp.equal,
        jnp.maximum,
        jnp.minimum,
        jnp.less,
        sample=(BOOLS, BOOLS[::-1].copy()),
        calls=((~BOOLS, BOOLS), (BOOLS, BOOLS)),
    ),
    "bits": binary(
        jnp.bitwise_and,
        jnp.bitwise_or,
        jnp.bitwise_xor,
        lambda x, y: ~x,
        sample=INTS,
        calls=INT_PAIRS,
    ),
    "shifts": binary(
        jnp.left_shift,
        lax.shift_right_arithmetic,
        lax.shift_right_logical,
        sample=(SMALL, np.abs(SMALL)),
        calls=((INTEGERS, SHIFTS), (SMALL, SHIFTS)),
    ),
    "bit counts": unary(lax.population_count, lax.clz, sample=SMALL, calls=(INTEGERS,)),
    "integer sums": binary(
        jnp.add,
        jnp.subtract,
        jnp.multiply,
        jnp.maximum,
        jnp.minimum,
        sample=INTS,
        calls=INT_PAIRS,
    ),
    "integer division": binary(lax.div, lax.rem, sample=INTS, calls=INT_PAIRS),
    "floor division": binary(
        jnp.floor_divide,
        jnp.remainder,
        lambda x, y: x // 3,
        lambda x, y: y % 4,
        sample=INTS,
        calls=INT_PAIRS,
    ),
    "unsigned": binary(
        jnp.add,
        jnp.subtract,
        jnp.floor_divide,
        jnp.remainder,
        jnp.less,
        jnp.maximum,
        sample=(np.uint32([1, 2, 3, 4]), np.uint32([4, 3, 2, 1])),
        calls=((np.uint32([0, 2**32 - 1, 2**31, 7]), np.uint32([1, 2, 3, 0])),),
    ),
    "integer unary": unary(
        jnp.abs,
        jnp.negative,
        jnp.sign,
        jnp.square,
        lambda x: x**3,
        sample=SMALL,
        calls=(INTEGERS,),
    ),
    "integer comparisons": binary(
        jnp.equal, jnp.less, jnp.greater_equal, sample=INTS, calls=INT_PAIRS
    ),
    "small integers": binary(
        jnp.add,
        jnp.subtract,
        jnp.multiply,
        jnp.maximum,
        jnp.bitwise_and,
        jnp.bitwise_xor,
        jnp.less,
        jnp.equal,
        sample=(BYTES[4:6].repeat(6), OTHER_BYTES),
        calls=((BYTES, OTHER_BYTES),),
    ),
    "small integer division": binary(
        lax.div,
        lax.rem,
        sample=(BYTES, np.full_like(BYTES, 3)),
        calls=((BYTES, OTHER_BYTES),),
    ),
    "integer casts": cast(jnp.int32, jnp.int8, jnp.uint8, jnp.int16),
    "unsigned casts": cast(jnp.uint32, jnp.uint16, calls=(EDGE,)),
    "casts of integers": cast(
        jnp.float32,
        jnp.int8,
        jnp.uint8,
        jnp.int16,
        jnp.uint32,
        jnp.bool_,
        sample=SMALL,
        calls=(INTEGERS,),
    ),
    "casts to bool": cast(jnp.bool_, jnp.float16),
}
