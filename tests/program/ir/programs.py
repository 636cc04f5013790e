"""Programs of every shape: nests of scan, while, cond and remat, effects, constants."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import meshwright as mw

TABLE = np.linspace(0, 1, 24, dtype=np.float32).reshape(4, 6)
X = np.ones((8, 6), np.float32)
W = np.ones((6, 6), np.float32)


class Case(NamedTuple):
    name: str
    fn: Callable
    args: tuple


def loop(x, w):
    def step(carry, row):
        carry = jnp.tanh(carry @ w) + row
        return carry, carry.sum(-1)

    return lax.scan(step, x, jnp.stack([x, x, x]))


def loss(x, w):
    block = jax.checkpoint(lambda y: jnp.sin(y @ w))
    last, sums = lax.scan(lambda c, _: (block(c), c.sum()), x, None, length=4)
    return (last**2).mean() + sums.sum()


def search(x, w):
    def more(carry):
        return (carry[0] < 3) & (carry[1].max() < 1e6)

    def step(carry):
        return carry[0] + 1, lax.cond(
            carry[0] % 2 == 0, twice, lambda y: y @ w, carry[1]
        )

    return lax.while_loop(more, step, (0, x))


def twice(y):
    return y * 2


def speak(x):
    jax.debug.print("sum {}", x.sum())
    return x + TABLE.sum()


def odd_ends(x, unused):
    del unused
    return x, x, 3.0, jnp.float32(jnp.nan), jnp.zeros((2, 3))


CASES = [
    Case("matmul", lambda x, w: mw.tag(x @ w, "product") + TABLE[0], (X, W)),
    Case("scan", loop, (X, W)),
    Case("gradient of scan and remat", jax.grad(loss, argnums=1), (X, W)),
    Case("while and cond", search, (X, W)),
    Case("effect", speak, (X,)),
    Case("odd ends", odd_ends, (X, W)),
    Case("nothing", lambda: (), ()),
    Case("keys", lambda key: jax.random.normal(key, (8,)), (jax.random.key(0),)),
    Case("bfloat16", lambda x: x.astype(jnp.bfloat16) * 2 - jnp.inf, (X,)),
]
