"""Cotangents that a loop hands back: added to what comes from outside in each step."""

import jax
import jax.numpy as jnp

import meshwright as mw


def test_a_partial_carried_cotangent_is_reduced_before_a_whole_one_is_added():
    """An LSTM's backward loop, with its units cut: `h` gets gradients from two sides."""

    def loss(weights, x, readout):
        recurrent, out = weights

        def cell(h, x):
            h = jnp.tanh(x + h @ recurrent) @ out
            return h, h

        _, all_h = jax.lax.scan(cell, jnp.zeros((4, 8)), x)
        return jnp.sum(all_h * readout)

    keys = jax.random.split(jax.random.key(0), 4)
    weights = (
        0.3 * jax.random.normal(keys[0], (8, 16)),
        0.3 * jax.random.normal(keys[1], (16, 8)),
    )
    x = jax.random.normal(keys[2], (5, 4, 16))
    readout = jax.random.normal(keys[3], (5, 4, 8))
    units = mw.shard({"weights.0": 1}, axis="model")
    report = mw.partition(jax.grad(loss), {"model": 2}, [units]).check(
        weights, x, readout
    )
    assert report.ok, str(report)
