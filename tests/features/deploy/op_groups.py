"""Groups of ops, each with a sample to deploy and edge values to call it with.

Edge values: halves, negatives, both zeros, NaN, infinities, the least and largest numbers.
"""

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
    LEAST,
    MOST,
    NAN,
    OTHER_BYTES,
    PLAIN,
    SHIFTS,
    SMALL,
    WILD,
)
from tests.features.deploy.op_functions import (
    GRID,
    GRID_EDGE,
    INT_PAIRS,
    INTS,
    OUTSIDE,
    PLACES,
    Group,
    at_places,
    binary,
    caches,
    cast,
    complex_math,
    loop,
    reduced,
    slice_writes,
    spectra,
    table,
    unary,
)

GROUPS = {
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
    "sums": reduced(jnp.sum, jnp.mean, jnp.prod),
    "largest": reduced(jnp.max, jnp.min),
    "places of the largest": reduced(jnp.argmax, jnp.argmin),
    "norms": reduced(jax.nn.softmax, jax.nn.log_softmax, jax.nn.logsumexp, jnp.var),
    "all and any": Group(
        lambda x: [jnp.all(x, 0), jnp.any(x, 1), jnp.sum(x)],
        (BOOLS.reshape(3, 4),),
        ((np.ones((3, 4), bool),), (np.zeros((3, 4), bool),)),
    ),
    "integer reductions": Group(
        lambda x: [
            jnp.sum(x, 0),
            jnp.max(x, 1),
            jnp.min(x),
            jnp.prod(x, 0),
            jnp.argmax(x),
            jnp.argmin(x, 0),
        ],
        (SMALL.reshape(3, 4),),
        ((INTEGERS.reshape(3, 4),),),
    ),
    "cumulative": reduced(
        jnp.cumsum,
        jnp.cumprod,
        lambda x, a: lax.cummax(x, a),
        lambda x, a: lax.cummin(x, a),
        lambda x, a: lax.cumlogsumexp(x, a),
        lambda x, a: lax.cumsum(x, a, reverse=True),
    ),
    "sorting": Group(
        lambda x: [
            jnp.sort(x),
            jnp.argsort(x),
            jnp.sort(x, descending=True),
            lax.sort((x, x[::-1]), num_keys=2)[1],
        ],
        (PLAIN,),
        ((EDGE,), (WILD,), (np.float32([1, 1, 0, 0, 2, 2, -1, -1, 3, 3, 0, 0]),)),
    ),
    "sorting rows": Group(
        lambda x: [
            jnp.argsort(x.reshape(3, 4)),
            jnp.argsort(x.reshape(3, 4), 0),
            lax.sort((x.reshape(3, 4), lax.iota(jnp.int32, 12).reshape(3, 4)))[1],
        ],
        (PLAIN,),
        ((EDGE,), (np.float32([1, 1, 0, 0, 2, 2, -1, -1, 3, 3, 0, 0]),)),
    ),
    "integer sorting": Group(
        lambda x: [jnp.sort(x), jnp.argsort(x), lax.top_k(x, 3)],
        (SMALL,),
        ((INTEGERS,), (np.int32([1] * 6 + [0] * 6),)),
    ),
    "top k": Group(
        lambda x: lax.top_k(x, 3), (PLAIN,), ((EDGE,), (np.float32([1] * 12),), (WILD,))
    ),
    "searching": Group(
        lambda x, q: [
            jnp.searchsorted(x, q),
            jnp.searchsorted(x, q, side="right"),
            jnp.interp(q, x, x * 2),
            jnp.digitize(q, x),
        ],
        (np.sort(PLAIN), PLAIN),
        (
            (
                np.sort(PLAIN),
                np.float32(
                    [0.5, -0.5, 1.5, -2.5, 0.0, 1e9, INF, -INF, 1e-30, 3e9, -3e9, 0.25]
                ),
            ),
        ),
    ),
    "gathers": at_places(
        lambda x, i: x[i],
        lambda x, i: jnp.take(x, i, 0, mode="fill"),
        lambda x, i: jnp.take(x, i, 0, mode="clip"),
        lambda x, i: jnp.take(x, i, 1),
        lambda x, i: x[i, i],
        lambda x, i: jnp.take_along_axis(x, i[:, None], 1),
    ),
    "scatters": at_places(
        lambda x, i: x.at[i].add(x),
        lambda x, i: x.at[i].max(x),
        lambda x, i: x.at[i].min(x * 2),
        lambda x, i: x.at[i].mul(x),
        lambda x, i: x.at[i, i].set(0.5),
        lambda x, i: x.at[i].set(2.0, mode="clip"),
    ),
    "dynamic slices": Group(
        lambda x, i: [
            lax.dynamic_slice(x, (i, 1), (2, 3)),
            lax.dynamic_update_slice(x, x[:2], (i, i)),
            lax.dynamic_index_in_dim(x, i),
        ],
        (table(), np.int32(1)),
        tuple((table(), np.int32(i)) for i in (-1, 7, LEAST, MOST)),
    ),
    "slice writes": Group(
        slice_writes, (table(), table() * 3), ((table(), EDGE.repeat(2).reshape(4, 6)),)
    ),
    "batched caches": Group(
        caches,
        (
            np.zeros((3, 5, 2), np.float32),
            np.ones((3, 1, 2), np.float32),
            np.int32([0, 2, 4]),
        ),
        (
            (
                np.zeros((3, 5, 2), np.float32),
                np.ones((3, 1, 2), np.float32),
                np.int32([-1, 9, MOST]),
            ),
        ),
    ),
    "segments": Group(
        lambda x, i: [
            jax.ops.segment_sum(x, i, 6),
            jax.ops.segment_max(x, i, 6),
            jax.ops.segment_min(x, i, 6),
            jax.ops.segment_prod(x, i, 6),
        ],
        (table(), PLACES),
        tuple((table(), i) for i in OUTSIDE),
    ),
    "one hot": Group(
        lambda i: [
            jax.nn.one_hot(i, 5),
            jnp.eye(5)[i],
            jnp.tril(jnp.ones((4, 4))) * i[:4, None],
        ],
        (np.abs(SMALL) % 5,),
        ((INTEGERS,),),
    ),
    "movement": Group(
        lambda x: [
            x.T,
            x[::-1],
            x[:, ::2],
            x[:, 1::2][:, ::-1],
            jnp.roll(x, 1, 0),
            jnp.pad(x, ((1, 2), (0, 1)), constant_values=-1),
            jnp.tile(x, (2, 1)),
            jnp.repeat(x, 2, 0),
            jnp.concatenate([x, x], 1),
            jnp.stack([x, x], 1),
            x.reshape(2, 6),
            jnp.pad(x, 1, mode="reflect"),
            jnp.flip(x, 1),
        ],
        (GRID,),
        ((GRID_EDGE,),),
    ),
    "empty": Group(
        lambda x: [
            x[:0].sum(0),
            jnp.concatenate([x[:0], x]),
            x[:, :0] @ x[:0],
            jax.ops.segment_sum(x[:0], jnp.zeros(0, jnp.int32), 3),
        ],
        (GRID,),
        ((GRID_EDGE,),),
    ),
    "products": Group(
        lambda x, y: [
            x @ y,
            jnp.einsum("ij,jk->ki", x, y),
            jnp.outer(x[0], y[0]),
            x[0] @ y,
            jnp.vdot(x, y.T),
        ],
        (GRID, GRID.T.copy()),
        ((GRID_EDGE, GRID.T.copy()),),
    ),
    "integer products": Group(
        lambda x, y: [x @ y, jnp.einsum("ij,jk->ki", x, y)],
        (SMALL.reshape(3, 4), SMALL.reshape(4, 3)),
        ((INTEGERS.reshape(3, 4), SMALL.reshape(4, 3)),),
    ),
    "pooling": Group(
        lambda x: [
            lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 2), "VALID"),
            lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "SAME"),
            lax.reduce_window(x, jnp.inf, lax.min, (2, 2), (1, 1), "SAME"),
        ],
        (GRID,),
        ((GRID_EDGE,), (GRID - 9,)),
    ),
    "loops": Group(
        loop,
        (PLAIN, np.int32(3)),
        ((EDGE, np.int32(0)), (WILD, np.int32(-5)), (EDGE, np.int32(4))),
    ),
    "branches": Group(
        lambda x, i: [
            lax.switch(i, [jnp.sin, jnp.cos, jnp.abs], x),
            lax.cond(i > 0, jnp.floor, jnp.ceil, x),
        ],
        (PLAIN, np.int32(1)),
        tuple((EDGE[:5].repeat(3)[:12], np.int32(i)) for i in (-3, 9, LEAST, MOST, 2)),
    ),
    "fourier transforms": Group(
        spectra,
        (table(6, 12),),
        ((table(6, 12)[::-1] * 1e3,), (np.zeros((6, 12), np.float32),)),
    ),
    "cosine transforms": Group(
        lambda x: [
            jax.scipy.fft.dct(x),
            jax.scipy.fft.idct(x),
            jax.scipy.fft.dct(x, axis=0, norm="ortho"),
        ],
        (table(6, 12),),
        ((table(6, 12)[::-1] * 1e3,), (np.zeros((6, 12), np.float32),)),
    ),
    "complex": Group(complex_math, (PLAIN, PLAIN[::-1].copy()), ((PLAIN * 3, PLAIN),)),
    "half precision": Group(
        lambda x, y: [
            x @ y,
            jnp.tanh(x),
            jnp.exp(x),
            x.sum(0),
            jax.nn.softmax(x),
            jnp.round(x),
        ],
        (GRID.astype(np.float16), GRID.T.astype(np.float16)),
        (
            (
                np.clip(GRID_EDGE, -6e4, 6e4).astype(np.float16),
                GRID.T.astype(np.float16),
            ),
        ),
    ),
    "bfloat16": Group(
        lambda x, y: [
            (x.astype(jnp.bfloat16) @ y.astype(jnp.bfloat16)).astype(jnp.float32),
            jax.nn.gelu(x.astype(jnp.bfloat16)).astype(jnp.float32),
        ],
        (GRID, GRID.T.copy()),
        ((GRID * 2, GRID.T * 3),),
    ),
    "random": Group(
        lambda k, x: x + jax.random.uniform(jax.random.wrap_key_data(k), x.shape),
        (np.uint32([0, 1]), PLAIN),
        ((np.uint32([2**32 - 1, 7]), PLAIN),),
    ),
    "linear algebra": Group(
        lambda x: [
            jnp.trace(x),
            jnp.linalg.norm(x),
            jnp.diag(x),
            jnp.triu(x),
            jnp.kron(x, x),
        ],
        (table(4, 4),),
        ((table(4, 4) * 100,),),
    ),
}
