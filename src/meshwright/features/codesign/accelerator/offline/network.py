"""The surrogate's network: merit and area of a design for an application.

Each parameter's value has a learned vector. A linear map of the application's context
multiplies them, as in PRIME; a perceptron makes the merit of the product. The area has
vectors and a perceptron of its own, without context. Letters in shapes: B designs, V values
of all parameters, G parameters, E width of a vector, C figures of a context.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.features.codesign.accelerator.logs.prime_space import VALUES
from meshwright.learn.layers import Params, apply, dense

COUNTS = tuple(map(len, VALUES.values()))
"""Values of each parameter."""

STARTS = (0, *accumulate(COUNTS))
"""For each parameter the position of its first value among all, then their number."""

OWNERS = np.repeat(np.arange(len(COUNTS)), COUNTS)
"""For each value of all parameters the parameter, [V]."""

_WIDTH, _HIDDEN, _AREA_HIDDEN = 16, 128, 64

_WAVES = 4
"""Cosines of a value's position of which its vector is first made."""


def init_network(seed: int, context_size: int) -> Params:
    """Random parameters of a network for contexts of a size, which may be 0."""
    keys = iter(jax.random.split(jax.random.key(seed), 12))
    inputs = len(COUNTS) * _WIDTH
    return {
        "values": _smooth_vectors(next(keys)),
        "context": jnp.zeros((context_size, inputs)),
        "merit": _perceptron(keys, inputs, _HIDDEN),
        "doubt": _perceptron(keys, inputs, _HIDDEN),
        "area_values": _smooth_vectors(next(keys)),
        "area": _perceptron(keys, inputs, _AREA_HIDDEN),
    }


def _smooth_vectors(key: Any) -> Any:
    """Random vectors of values [V, E], alike for neighbouring values of a parameter."""
    places = np.concatenate([np.linspace(0, 1, count) for count in COUNTS])
    waves = np.cos(np.pi * np.outer(places, np.arange(1, _WAVES + 1)))
    waves /= np.arange(1, _WAVES + 1)
    mixes = jax.random.normal(key, (len(COUNTS), _WAVES, _WIDTH))
    return jnp.einsum("vw,vwe->ve", waves, mixes[OWNERS])


def _perceptron(keys: Any, inputs: int, hidden: int) -> Params:
    return {
        "first": dense(next(keys), inputs, hidden),
        "second": dense(next(keys), hidden, hidden),
        "out": dense(next(keys), hidden, 1),
    }


def _output(params: Params, x: Any) -> Any:
    x = jax.nn.leaky_relu(apply(params["first"], x), 0.1)
    x = jax.nn.leaky_relu(apply(params["second"], x), 0.1)
    return apply(params["out"], x)[..., 0]


def one_hot(genes: Any) -> Any:
    """Genes [B, G] as ones and zeros for each value of each parameter, [B, V]."""
    chosen = genes + jnp.array(STARTS[:-1])
    return jax.nn.one_hot(chosen, STARTS[-1]).sum(axis=1)


def merit_of(params: Params, hot: Any, context: Any) -> Any:
    """Merit [B] of designs [B, V] for applications with contexts [B, C]; more is better."""
    return expected_of(params, hot, context) - doubt_of(params, hot, context)


def expected_of(params: Params, hot: Any, context: Any) -> Any:
    """Merit of designs [B, V] before doubt, [B]: a regression on feasible designs."""
    return _output(params["merit"], _in_context(params, hot, context))


def doubt_of(params: Params, hot: Any, context: Any) -> Any:
    """What is subtracted from the merit of designs [B, V], [B]; never negative.

    It learns where designs are infeasible or overestimated, so that the regression stays
    smooth there.
    """
    return jax.nn.relu(_output(params["doubt"], _in_context(params, hot, context)))


def _in_context(params: Params, hot: Any, context: Any) -> Any:
    return _code(params["values"], hot) * (1 + context @ params["context"])


def log_area_of(params: Params, hot: Any) -> Any:
    """Standardised logarithm of the area of designs [B, V], [B]."""
    return _output(params["area"], _code(params["area_values"], hot))


def _code(table: Any, hot: Any) -> Any:
    """The vectors of a design's values, side by side, [B, G * E]."""
    owned = jnp.array(np.eye(len(COUNTS), dtype=np.float32)[OWNERS])
    vectors = jnp.einsum("bv,vg,ve->bge", hot, owned, table)
    return vectors.reshape(len(hot), -1)
