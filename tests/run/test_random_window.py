"""Windows of random bits are slices of the bits that JAX makes."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.run.local.random_window import _counters, random_bits_window


def _bits(keys, bit_width, shape):
    dtype = f"uint{bit_width}"
    flat = jax.vmap(lambda k: jax.random.bits(k, shape, dtype))(keys.reshape(-1))
    return np.asarray(flat).reshape((*keys.shape, *shape))


@st.composite
def windows(draw):
    shape = tuple(draw(st.lists(st.integers(0, 7), max_size=3)))
    starts = tuple(draw(st.integers(0, n)) for n in shape)
    local = tuple(
        draw(st.integers(0, n - s)) for n, s in zip(shape, starts, strict=True)
    )
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    return batch, shape, starts, local


@pytest.mark.parametrize("count", [10, pytest.param(60, marks=pytest.mark.slow)])
def test_any_window_is_a_slice_of_the_whole(count):
    @settings(deadline=None, max_examples=count)
    @given(windows(), st.sampled_from([8, 16, 32, 64]), st.integers(0, 2**31 - 1))
    def compare(window, bit_width, seed):
        assert_window_is_slice(window, bit_width, seed)

    compare()


def assert_window_is_slice(window, bit_width, seed):
    batch, shape, starts, local = window
    with jax.enable_x64(bit_width == 64):
        keys = jax.random.split(jax.random.key(seed), batch)
        whole = _bits(keys, bit_width, shape)
        found = random_bits_window(
            keys, *starts, bit_width=bit_width, shape=shape, local_shape=local
        )
        places = tuple(slice(s, s + n) for s, n in zip(starts, local, strict=True))
        expected = whole[(slice(None),) * len(batch) + places]
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(found), expected)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=3).filter(
        lambda shape: math.prod(shape) <= 2**64
    ),
    st.data(),
)
def test_positions_beyond_32_bits_have_a_high_word(shape, data):
    local = tuple(min(n, 2) for n in shape)
    starts = tuple(
        data.draw(st.integers(0, n - m)) for n, m in zip(shape, local, strict=True)
    )
    high, low = _counters(starts, tuple(shape), local)
    found = np.asarray(high).astype(object) * 2**32 + np.asarray(low).astype(object)
    for index in np.ndindex(*local):
        position = 0
        for n, s, i in zip(shape, starts, index, strict=True):
            position = position * n + s + i
        assert found[index] == position


@pytest.mark.parametrize("bit_width", [8, 32])
def test_starts_may_be_traced(bit_width):
    key = jax.random.key(0)
    window = jax.jit(
        lambda s: random_bits_window(
            key, s, 0, bit_width=bit_width, shape=(8, 6), local_shape=(2, 6)
        )
    )
    whole = _bits(key[None], bit_width, (8, 6))[0]
    np.testing.assert_array_equal(window(jnp.int32(4)), whole[4:6])
