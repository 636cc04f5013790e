"""States of training to save and compare, and meshes to put them on."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec

MESHES = {
    "eight": ((8,), ("data",)),
    "four by two": ((4, 2), ("data", "model")),
    "two by four": ((2, 4), ("data", "model")),
    "transposed": ((2, 4), ("model", "data")),
    "four": ((4,), ("data",)),
    "two": ((2,), ("model",)),
    "one": ((1,), ("data",)),
}


def make_state(seed=0):
    """Parameters and Adam as NamedTuples, half-precision numbers, integers and a key."""
    keys = jax.random.split(jax.random.key(seed), 3)
    params = {
        "up": jax.random.normal(keys[0], (16, 32)),
        "down": jax.random.normal(keys[1], (32, 16), jnp.bfloat16),
        "blocks": [jnp.arange(8.0) + seed, jnp.ones((4, 8)) * seed],
    }
    optimizer = optax.adam(1e-3).init(params)
    seen = jnp.zeros(8, bool).at[seed % 8].set(True)
    return {"params": params, "optimizer": optimizer, "key": keys[2], "seen": seen}


def shardings_on(name, state):
    """For each array a sharding over a mesh of `MESHES`, which cuts what it can."""
    shape, axes = MESHES[name]
    count = int(np.prod(shape))
    devices = np.array(jax.devices()[:count]).reshape(shape)
    mesh = jax.sharding.Mesh(devices, axes)

    def cut(leaf):
        sizes = dict(zip(axes, shape, strict=True))
        spec = []
        for size in leaf.shape:
            axis = next((a for a, n in sizes.items() if size % n == 0), None)
            spec.append(axis)
            sizes.pop(axis, None)
        return NamedSharding(mesh, PartitionSpec(*spec))

    return jax.tree.map(cut, state)


def put(state, shardings):
    return jax.tree.map(jax.device_put, state, shardings)


def bits(leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf).tobytes()


def assert_same(state, wanted):
    """Both states have the same structure and the same bits."""
    assert jax.tree.structure(state) == jax.tree.structure(wanted)
    for got, want in zip(jax.tree.leaves(state), jax.tree.leaves(wanted), strict=True):
        assert got.dtype == want.dtype
        assert bits(got) == bits(want)
