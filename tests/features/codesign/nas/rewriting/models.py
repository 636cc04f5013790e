"""A task that trains in a fraction of a second: the sign of a mean."""

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.codesign import nas


def data(count: int, seed: int):
    x = np.random.default_rng(seed).normal(size=(count, 6, 8)).astype(np.float32)
    return x, (x.mean(1)[:, 0] > 0).astype(np.int32)


def init(key):
    shapes = {"first": (8, 16), "second": (16, 16), "classes": (16, 2)}
    keys = jax.random.split(key, len(shapes))
    drawn = zip(shapes.items(), keys, strict=True)
    return {name: 0.3 * jax.random.normal(k, shape) for (name, shape), k in drawn}


def apply(params, x):
    y = jax.nn.relu(x @ params["first"])
    y = y + jnp.tanh(y @ params["second"])
    return y.mean(1) @ params["classes"]


def looped(params, x):
    """As `apply`, with the second layer in a loop of two iterations."""
    y = jax.nn.relu(x @ params["first"])
    stacked = jnp.stack([params["second"], 2 * params["second"]])
    y, _ = jax.lax.scan(lambda y, w: (y + jnp.tanh(y @ w), None), y, stacked)
    return y.mean(1) @ params["classes"]


def task(fn=apply, **fields) -> nas.Task:
    parts = {
        name: data(count, seed)
        for seed, (name, count) in enumerate(
            {"train": 128, "validation": 64, "test": 64}.items()
        )
    }
    return nas.Task(
        fn, init, **({**parts, "steps": 20, "batch": 16, "rate": 1e-2} | fields)
    )
