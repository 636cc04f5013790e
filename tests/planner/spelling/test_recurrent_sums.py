"""Spelling of programs whose equal ops read several values, which are then one node."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

import meshwright as mw

WIDTH = 1024


def cell(w, carry, x):
    h, c = carry
    i, f, g, o = jnp.split(x @ w["in"] + h @ w["own"] + w["bias"], 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


def train(params, tokens):
    def loss(params):
        x = params["embed"][tokens].swapaxes(0, 1)
        for w in params["layers"]:
            zeros = jnp.zeros(x.shape[1:], x.dtype)
            _, x = lax.scan(partial(cell, w), (zeros, zeros), x)
        return jnp.mean((x @ params["head"]) ** 2)

    return jax.tree.map(lambda p, g: p - g, params, jax.grad(loss)(params))


def real(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def test_a_search_over_two_lstms_ends():
    each = {
        "in": real(WIDTH, 4 * WIDTH),
        "own": real(WIDTH, 4 * WIDTH),
        "bias": real(4 * WIDTH),
    }
    params = {
        "embed": real(8192, WIDTH),
        "head": real(WIDTH, 8192),
        "layers": [each, each],
    }
    tokens = jax.ShapeDtypeStruct((256, 128), jnp.int32)
    mesh = {"data": 4}
    plan = mw.autoplan(train, (params, tokens), machine="tpu-v5e", mesh=mesh)
    assert plan.fits
