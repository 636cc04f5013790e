"""Fingerprints of arrays: 32 bits that tell a damaged array from the one that was saved.

The bits of an array are read as unsigned words x[i], which are summed with odd weights: the
sum of (2 i + 1) h x[i] modulo 2^32, where h is odd. One changed word always changes the
sum, since an odd number has an inverse modulo 2^32; of other damage 1 in 2^32 is missed.
The sum is computed where the array lies, and does not depend on its sharding. TensorStore
has checksums of its index, but Orbax writes the values of arrays without one.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding

from meshwright.features.checkpoint.state_leaves import held_dtype, host_array
from meshwright.jax_private import is_key

_MIX = 0x9E3779B1
"""An odd constant close to 2^32 divided by the golden ratio, for well mixed weights."""


def fingerprints(leaves: list[Any]) -> list[int]:
    """The fingerprint of each array; all processes that hold a part must call this."""
    sums = [_weighted_sum(_plain(leaf)) for leaf in leaves]
    return [int(np.asarray(each.addressable_data(0))) for each in sums]


def _plain(leaf: Any) -> jax.Array:
    """A leaf as an array of numbers; PRNG keys become integers.

    Values of a dtype that JAX lacks become words of 32 bits. The axes of its mesh all
    get the type `Auto`, with which `jnp` ops work on any sharding.
    """
    if not isinstance(leaf, jax.Array):
        leaf = host_array(leaf)
        if held_dtype(leaf.dtype) != leaf.dtype:
            words = np.ascontiguousarray(leaf).reshape(*leaf.shape, 1)
            leaf = words.view(np.uint32)
    array = jnp.asarray(leaf)
    if is_key(array.dtype):
        array = jax.random.key_data(array)
    sharding = array.sharding
    if not isinstance(sharding, NamedSharding):
        return array
    mesh = sharding.mesh
    if isinstance(mesh, jax.sharding.AbstractMesh) or not mesh.axis_names:
        return array
    types = (AxisType.Auto,) * len(mesh.axis_names)
    if mesh.axis_types == types:
        return array
    auto = jax.sharding.Mesh(mesh.devices, mesh.axis_names, axis_types=types)
    shards = [shard.data for shard in array.addressable_shards]
    return jax.make_array_from_single_device_arrays(
        array.shape, NamedSharding(auto, sharding.spec), shards
    )


@jax.jit
def _weighted_sum(array: jax.Array) -> jax.Array:
    words = _as_words(array)
    position = jnp.zeros(words.shape, jnp.uint32)
    for dim, size in enumerate(words.shape):
        along = jax.lax.broadcasted_iota(jnp.uint32, words.shape, dim)
        position = position * jnp.uint32(size % 2**32) + along
    weights = (2 * position + 1) * jnp.uint32(_MIX)
    return jnp.sum(weights * words, dtype=jnp.uint32)


def _as_words(array: jax.Array) -> jax.Array:
    """The bits of an array as unsigned words.

    A complex number becomes two words, and a number of 64 bits two words of 32 bits.
    """
    if jnp.iscomplexobj(array):
        array = jnp.stack([array.real, array.imag], axis=-1)
    if array.dtype == jnp.bool_:
        return array.astype(jnp.uint32)
    bits = (
        jnp.finfo(array.dtype).bits if _is_float(array) else jnp.iinfo(array.dtype).bits
    )
    if bits < 8:  # packed in memory: by value, which is exact
        return array.astype(jnp.int32).astype(jnp.uint32)
    word = {8: jnp.uint8, 16: jnp.uint16}.get(bits, jnp.uint32)
    return jax.lax.bitcast_convert_type(array, word).astype(jnp.uint32)


def _is_float(array: jax.Array) -> bool:
    return jnp.issubdtype(array.dtype, jnp.floating)
