"""Sums in the middle of a step: refused, or taken over each microbatch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import StageError

W = {
    "first": jax.random.normal(jax.random.key(0), (6, 8)),
    "scale": jnp.ones(8) * 1.5,
    "second": jax.random.normal(jax.random.key(1), (8, 4)),
}
X = jax.random.normal(jax.random.key(2), (12, 6)) + 1


def loss(w, x):
    h = x @ w["first"]
    mean, var = h.mean(0), h.var(0)
    h = jnp.tanh((h - mean) / jnp.sqrt(var + 1e-3) * w["scale"])
    return ((mw.stage(h, "second") @ w["second"]) ** 2).mean(), mean


def step(w, x):
    (value, mean), grads = jax.value_and_grad(loss, has_aux=True)(w, x)
    return jax.tree.map(lambda a, g: a - 0.1 * g, w, grads), value, mean


def test_a_batch_norm_over_the_whole_batch_is_refused_with_its_line():
    pipelined = mw.pipeline(step, {"stage": 2}, microbatches=3)
    with pytest.raises(StageError, match=r"test_statistics.*statistics='microbatch'"):
        pipelined.plan(W, X)


def test_one_microbatch_has_the_statistics_of_the_whole_batch():
    assert mw.pipeline(step, {"stage": 2}, microbatches=1).check(W, X).ok


def test_pairs_of_all_examples_are_pipelined_as_one_microbatch():
    def pairs(w, x):
        def loss(w):
            left, right = jnp.tanh(x @ w["a"]), jnp.tanh(x @ w["b"])
            return jax.nn.logsumexp(left @ right.T, -1).mean()

        value, grads = jax.value_and_grad(loss)(w)
        return jax.tree.map(lambda w, g: w - 0.1 * g, w, grads), value

    w = {"a": jnp.eye(6), "b": 2 * jnp.eye(6)}
    assert mw.pipeline(pairs, {"stage": 2}, microbatches=1).check(w, X).ok
    with pytest.raises(StageError, match="give microbatches=1, so that each example"):
        mw.pipeline(pairs, {"stage": 2}, microbatches=3).plan(w, X)


def test_statistics_of_microbatches_are_those_of_accumulated_gradients():
    def accumulated(w, x):
        parts = [step(w, part) for part in jnp.split(x, 3)]
        new, value, mean = (
            jax.tree.map(lambda *each: sum(each) / 3, *kind)
            for kind in zip(*parts, strict=True)
        )
        return new, value, mean

    pipelined = mw.pipeline(step, {"stage": 2}, microbatches=3, statistics="microbatch")
    found, wanted = pipelined(W, X), accumulated(W, X)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-4, atol=1e-5)
    assert pipelined.check(W, X).ok


def test_statistics_of_microbatches_are_taken_within_loops_over_layers_too():
    def scanned_loss(stacked, x):
        def layer(h, w):
            h = h @ w
            return (h - h.mean(0)) / jnp.sqrt(h.var(0) + 1e-3), None

        return (jax.lax.scan(layer, x, stacked)[0] * x).mean()

    def scanned_step(stacked, x):
        return stacked - 0.1 * jax.grad(scanned_loss)(stacked, x)

    stacked = jax.random.normal(jax.random.key(3), (4, 6, 6))
    pipelined = mw.pipeline(
        scanned_step, {"stage": 2}, microbatches=3, statistics="microbatch"
    )
    assert pipelined.check(stacked, X).ok
