"""Warnings about nnx modules that a partitioned function would not train."""

from functools import partial

import jax
import numpy as np
import pytest
from flax import nnx

import meshwright as mw
from meshwright.errors import MeshwrightWarning

X = np.ones((8, 8), np.float32)
LAYER = nnx.Linear(8, 8, rngs=nnx.Rngs(0))


def partitioned(fn):
    return mw.partition(fn, {"data": 8})


def closed_over():
    layer = LAYER

    def loss(x):
        return layer(x).sum()

    return lambda x: loss(x)


def global_module(x):
    return LAYER(x)


def bound(layer, x):
    return layer(x)


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (closed_over(), "layer"),
        (global_module, "LAYER"),
        (jax.jit(global_module), "LAYER"),
        (partial(bound, LAYER), "an argument of partial"),
        (LAYER.__call__, "the object of the method __call__"),
        (LAYER, "self"),
    ],
)
def test_a_module_that_is_no_argument_is_warned_of(fn, name):
    with pytest.warns(
        MeshwrightWarning, match=f"takes {name}.*, a Linear, from outside"
    ):
        partitioned(fn).plan(X)


def test_a_change_that_is_lost_is_warned_of():
    def step(layer, x):
        layer.bias[...] += x.mean()
        return layer(x)

    with pytest.warns(MeshwrightWarning, match="changes layer.bias.value in place and"):
        partitioned(step)(nnx.Linear(8, 8, rngs=nnx.Rngs(0)), X)


def test_what_is_right_is_not_warned_of():
    """Warnings are errors in these tests."""
    graph, state = nnx.split(LAYER)

    def merged(state, x):
        return nnx.merge(graph, state)(x)

    def returned(layer, x):
        layer.bias[...] += x.mean()
        return layer, layer(x)

    partitioned(merged)(state, X)
    partitioned(returned)(LAYER, X)
    partitioned(bound)(LAYER, X)
