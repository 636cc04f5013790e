"""Groups of ops, each with a sample to deploy and edge values to call it with.

The edge values are halves, negative numbers, zeros of both signs, NaN, infinities, values
out of bounds, and the smallest and largest integers.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.features.deploy.edge_values import (
    BOOLS,
    EDGE,
    INF,
    INTEGERS,
    LEAST,
    MOST,
    PLAIN,
    SMALL,
    WILD,
)
from tests.features.deploy.elementwise_groups import ELEMENTWISE
from tests.features.deploy.op_functions import (
    GRID,
    GRID_EDGE,
    OUTSIDE,
    PLACES,
    Group,
    at_places,
    caches,
    complex_math,
    loop,
    reduced,
    slice_writes,
    spectra,
    table,
)

GROUPS = ELEMENTWISE | {
    "sums": reduced(jnp.sum, jnp.mean, jnp.prod),
    "largest": reduced(jnp.max, jnp.min),
    "places of the largest": reduced(jnp.argmax, jnp.argmin),
    "norms": reduced(jax.nn.softmax, jax.nn.log_softmax, jax.nn.logsumexp, jnp.var),
    "all and any": Group(
        lambda x: [jnp.all(x, 0), jnp.any(x, 1), jnp.sum(x)],
        (BOOLS.reshape(3, 4),),
        ((np.ones((3, 4), bool),), (np.zeros((3, 4), bool),)),
    ),
    "reductions over no dims": Group(
        lambda x: [
            jnp.any(x > 0, ()),
            jnp.all(x > 0, ()),
            jnp.sum(x, ()),
            jnp.max(x, ()),
            jnp.unique(x, size=4, fill_value=9),
        ],
        (SMALL,),
        ((INTEGERS,), (np.zeros(12, np.int32),)),
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
