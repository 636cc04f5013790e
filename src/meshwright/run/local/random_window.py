"""Windows of random bits: one device's part of an array that no device has completely.

Threefry with `jax_threefry_partitionable` hashes, for each element, the key and the
element's position in row-major order as a 64-bit counter (Salmon et al., "Parallel
Random Numbers: As Easy as 1, 2, 3", SC 2011). A window is computed from the counters
that its elements have in the whole array. Counters are pairs of uint32, because uint64
needs `jax_enable_x64`.
"""

import math

import jax
import jax.numpy as jnp
from jax.extend.random import threefry2x32_p

_WORD = 2**32


def random_bits_window(
    keys: jax.Array,
    *starts: jax.Array | int,
    bit_width: int,
    shape: tuple[int, ...],
    local_shape: tuple[int, ...],
) -> jax.Array:
    """The window of `random_bits(keys, bit_width, shape)` that starts at `starts`.

    keys: typed threefry keys of any shape K.
    starts: a scalar integer per dim of `shape`; the window must lie inside of the array.
    shape, local_shape: shapes of the array and of the window, without K.
    Returns uint{bit_width}[*K, *local_shape]; 64 bits need `jax_enable_x64`.
    """
    high, low = _counters(starts, shape, local_shape)
    words = jax.random.key_data(keys)
    ones = (1,) * len(local_shape)
    whole = (*keys.shape, *local_shape)
    first, second = (
        jnp.broadcast_to(words[..., i].reshape(*keys.shape, *ones), whole)
        for i in range(2)
    )
    counters = (jnp.broadcast_to(c, whole) for c in (high, low))
    bits_high, bits_low = threefry2x32_p.bind(first, second, *counters)
    if bit_width == 64:
        wide = bits_high.astype(jnp.uint64)
        return (wide << jnp.uint64(32)) | bits_low.astype(jnp.uint64)
    return (bits_high ^ bits_low).astype(f"uint{bit_width}")


def _counters(
    starts: tuple[jax.Array | int, ...],
    shape: tuple[int, ...],
    local_shape: tuple[int, ...],
) -> tuple[jax.Array, jax.Array]:
    """Row-major positions of the window's elements in the whole: high and low words."""
    high = jnp.zeros(local_shape, jnp.uint32)
    low = jnp.zeros(local_shape, jnp.uint32)
    fits = math.prod(shape) <= _WORD
    for dim, start in enumerate(starts):
        positions = jnp.asarray(start).astype(jnp.uint32)
        positions = positions + jnp.arange(local_shape[dim], dtype=jnp.uint32)
        part_high, part_low = _times(positions, math.prod(shape[dim + 1 :]))
        along = [1] * len(shape)
        along[dim] = local_shape[dim]
        low = low + part_low.reshape(along)
        if not fits:
            carry = (low < part_low.reshape(along)).astype(jnp.uint32)
            high = high + part_high.reshape(along) + carry
    return high, low


def _times(x: jax.Array, factor: int) -> tuple[jax.Array, jax.Array]:
    """High and low word of uint32 `x` times a factor below 2**64, modulo 2**64.

    Schoolbook multiplication in half words: (a 2^16 + b)(c 2^16 + d).
    """
    factor_high, factor_low = (jnp.uint32(w) for w in divmod(factor % _WORD**2, _WORD))
    half = jnp.uint32(16)
    mask = jnp.uint32(0xFFFF)
    a, b = x >> half, x & mask
    c, d = factor_low >> half, factor_low & mask
    middle = a * d + ((b * d) >> half)
    other = b * c + (middle & mask)
    carried = a * c + (middle >> half) + (other >> half)
    return carried + x * factor_high, x * factor_low
