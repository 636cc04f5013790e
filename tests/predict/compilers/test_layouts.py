"""Layouts: bytes of arrays that are padded to tiles."""

import itertools

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.predict.compilers.model.tiled_layouts import Layouts, shape_layouts
from meshwright.program.capture import capture
from meshwright.program.ir import Value, itemsize_bytes


@settings(max_examples=50)
@given(
    st.lists(st.integers(1, 300), min_size=2, max_size=4),
    st.sampled_from(["float32", "bfloat16", "int8"]),
)
def test_padding_is_the_least_over_pairs_of_minor_dims(shape, dtype):
    layout = Layouts((8, 128))
    itemsize = itemsize_bytes(dtype)

    def padded(columns, rows):
        size = itemsize
        high = next(n for n in (1, 2, 4, 8) if n >= min(shape[rows], 8))
        tiles = {columns: 128, rows: max(high, 4 // itemsize)}
        for dim, extent in enumerate(shape):
            tile = tiles.get(dim, 1)
            size *= -(-extent // tile) * tile
        return size

    pairs = itertools.permutations(range(len(shape)), 2)
    want = min(padded(*pair) for pair in pairs)
    assert layout.size(Value(tuple(shape), dtype)) == want


@pytest.mark.parametrize(
    ("extent", "dtype", "rows"),
    [  # as libtpu 0.0.50 has them, along the dim before the last
        (5, "float32", 8),
        (4, "float32", 4),
        (1, "float32", 1),
        (1, "bfloat16", 2),
        (3, "bfloat16", 4),
        (1, "bool", 4),
        (9, "float32", 16),
    ],
)
def test_a_tile_has_as_many_rows_as_its_dim_needs(extent, dtype, rows):
    value = Value((extent, 1024), dtype)
    assert Layouts((8, 128)).size(value) == rows * 1024 * itemsize_bytes(dtype)


def test_a_batch_dim_of_a_batched_product_is_never_minor():
    """Scores of 50 patches are laid out so (libtpu 0.0.50), though 128 fills lanes."""

    def fn(q, k):
        return jnp.einsum("bqh,bkh->bqk", q, k) * 2.0

    heads = jax.ShapeDtypeStruct((128, 50, 64), jnp.float32)
    program = capture(fn, (heads, heads)).program
    layout = Layouts((8, 128))
    (scores,) = program.outputs
    assert layout.size(scores) == 50 * 56 * 128 * 4
    layout = Layouts((8, 128)).changed(shapes=shape_layouts(program))
    assert layout.size(scores) == 128 * 56 * 128 * 4


def test_operands_of_batched_products_keep_the_batch_out_of_the_minor_dims():
    def scores(q, k):
        return jnp.einsum("btnh,bsnh->bnts", q, k)

    x = jax.ShapeDtypeStruct((256, 196, 6, 64), jnp.bfloat16)
    program = capture(scores, (x, x)).program
    free = shape_layouts(program).batched_products
    assert free[x.shape] == (1, 3)
