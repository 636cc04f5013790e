"""Pallas kernels, interpreted: grids whose dims can be cut, and some that cannot."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tests.program.ops.catalogue import Example

_RNG = np.random.default_rng(21)
_X = _RNG.normal(size=(32, 16)).astype(np.float32)
_W = _RNG.normal(size=(16, 64)).astype(np.float32)
_STACK = _RNG.normal(size=(4, 8, 16)).astype(np.float32)
_ROWS = np.array([3, 1, 0, 2], np.int32)


def _shape(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def blocks(x, w):
    """tanh(x @ w), a block of rows by one of columns a step."""

    def kernel(x, w, out):
        out[...] = jnp.tanh(x[...] @ w[...])

    return pl.pallas_call(
        kernel,
        grid=(4, 2),
        in_specs=[
            pl.BlockSpec((8, 16), lambda i, j: (i, 0)),
            pl.BlockSpec((16, 32), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((8, 32), lambda i, j: (i, j)),
        out_shape=_shape(32, 64),
        interpret=True,
    )(x, w)


def summed(x, w):
    """x @ w, sums in scratch memory over the last dim of the grid."""

    def kernel(x, w, out, total):
        @pl.when(pl.program_id(1) == 0)
        def _():
            total[...] = jnp.zeros_like(total)

        total[...] += x[...] @ w[...]

        @pl.when(pl.program_id(1) == pl.num_programs(1) - 1)
        def _():
            out[...] = total[...]

    return pl.pallas_call(
        kernel,
        grid=(4, 2),
        in_specs=[
            pl.BlockSpec((8, 8), lambda i, k: (i, k)),
            pl.BlockSpec((8, 64), lambda i, k: (k, 0)),
        ],
        out_specs=pl.BlockSpec((8, 64), lambda i, k: (i, 0)),
        out_shape=_shape(32, 64),
        scratch_shapes=[pltpu.VMEM((8, 64), jnp.float32)],
        interpret=True,
    )(x, w)


def placed(x):
    """x plus the number of its row of blocks, which a device cannot know of its own."""

    def kernel(x, out):
        out[...] = x[...] + pl.program_id(0)

    spec = pl.BlockSpec((8, 8), lambda i, j: (i, j))
    return pl.pallas_call(
        kernel,
        grid=(4, 2),
        in_specs=[spec],
        out_specs=spec,
        out_shape=_shape(32, 16),
        interpret=True,
    )(x)


def picked(rows, x):
    """Twice the rows of blocks that a table names, each beside its number."""

    def kernel(rows, x, out):
        del rows
        out[...] = 2 * x[...]

    return pl.pallas_call(
        kernel,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(4, 2),
            in_specs=[pl.BlockSpec((8, 8), lambda i, j, rows: (rows[i], j))],
            out_specs=pl.BlockSpec((8, 8), lambda i, j, rows: (i, j)),
        ),
        out_shape=_shape(32, 16),
        interpret=True,
    )(rows, x)


def squeezed(x):
    """Sums of rows of each matrix, a matrix a step, and their batch by `vmap`."""

    def kernel(x, out):
        out[...] = x[...].sum(0)

    def sums(x):
        return pl.pallas_call(
            kernel,
            grid=(x.shape[0],),
            in_specs=[pl.BlockSpec((None, 8, 16), lambda i: (i, 0, 0))],
            out_specs=pl.BlockSpec((None, 16), lambda i: (i, 0)),
            out_shape=_shape(x.shape[0], 16),
            interpret=True,
        )(x)

    return jax.vmap(sums)(jnp.stack([x, -x]))


def in_place(x):
    """x plus one, written over it."""

    def kernel(x, out):
        out[...] = x[...] + 1

    spec = pl.BlockSpec((8, 8), lambda i, j: (i, j))
    return pl.pallas_call(
        kernel,
        grid=(4, 2),
        in_specs=[spec],
        out_specs=spec,
        out_shape=_shape(32, 16),
        input_output_aliases={0: 0},
        interpret=True,
    )(x)


def whole(x):
    """A kernel without a grid."""

    def kernel(x, out):
        out[...] = jnp.cumsum(x[...], 0)

    return pl.pallas_call(kernel, out_shape=_shape(32, 16), interpret=True)(x)


EXAMPLES = [
    Example("a block of rows by one of columns", blocks, (_X, _W)),
    Example("sums in scratch memory", summed, (_X, _W)),
    Example("steps that ask where they are", placed, (_X,)),
    Example("blocks that a table names", picked, (_ROWS, _X)),
    Example("squeezed dims under vmap", squeezed, (_STACK,)),
    Example("a result in an operand's place", in_place, (_X,)),
    Example("a kernel without a grid", whole, (_X,)),
]
