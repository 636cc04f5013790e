"""Small models and examples for recipes of tests."""

import time

import jax
import jax.numpy as jnp
import numpy as np

import meshwright as mw

schedules = {"cut": [mw.shard({"batch.**": 0}, axis="data")]}


def linear(width=8):
    """A model of one matrix, whose loss needs the key for its noise."""

    def init(key):
        return {"w": jax.random.normal(key, (4, width))}

    def loss(params, batch, key):
        noise = 1.0
        if key is not None:
            noise += 0.1 * jax.random.normal(key, batch["x"].shape)
        return jnp.mean((batch["x"] * noise @ params["w"] - batch["y"]) ** 2)

    return init, loss


def exact(width=8):
    """A model of one matrix, whose loss has no noise."""
    init, loss = linear(width)
    return init, lambda params, batch: loss(params, batch, None)


def steep(width=8):
    """A model whose loss is not a number in its sixth step."""
    init, plain = linear(width)

    def loss(params, batch, key):
        sixth = jax.random.fold_in(jax.random.key(0), 5)
        is_sixth = (jax.random.key_data(key) == jax.random.key_data(sixth)).all()
        return plain(params, batch, key) * jnp.where(is_sixth, jnp.nan, 1.0)

    return init, loss


def of_tokens():
    """A model of tokens, without any sense."""

    def init(key):
        return {"w": jax.random.normal(key, (256,))}

    def loss(params, batch):
        return jnp.mean((params["w"][batch["inputs"]] - 1) ** 2)

    return init, loss


def not_a_model():
    return 3


class Numbered:
    """Examples that hold their own number, so that it can be seen which were read."""

    def __init__(self, count, width, pause_s):
        self.count, self.width, self.pause_s = count, width, pause_s

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.pause_s:
            time.sleep(self.pause_s)
        x = np.full(4, (index % 7) / 7, np.float32)
        return {"x": x, "y": np.full(self.width, index / self.count, np.float32)}


def numbered(count=48, width=8, pause_s=0.0):
    """Examples that take some seconds to read."""
    return Numbered(count, width, pause_s)
