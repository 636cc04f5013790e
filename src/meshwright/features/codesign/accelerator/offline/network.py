"""The surrogate's network: merit and area of a design for an application.

Each parameter's value has a learned vector. A linear map of the application's context
multiplies them, as in PRIME. Of the product several perceptrons (PRIME's experts) make the
expected merit, and one the doubt that is subtracted. The area has factors
of its own, without context. Letters in shapes: B designs, V values of all parameters, G
parameters, E width of a vector, C figures of a context, K experts, T parts of an area.
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

_WIDTH, _HIDDEN, _DOUBT_HIDDEN = 16, 64, 32

_EXPERTS = 4
"""Perceptrons whose mean is the expected merit."""

_AREA_PARTS = 12

_WAVES = 4
"""Cosines of a value's position of which its vector is first made."""


def init_network(seed: int, context_size: int) -> dict[str, Params]:
    """Random parameters of a network for contexts of a size, which may be 0.

    "merit" and "area" share nothing, so that each is trained on its own.
    """
    keys = iter(jax.random.split(jax.random.key(seed), 6))
    inputs = len(COUNTS) * _WIDTH
    experts = [
        _perceptron(k, inputs, _HIDDEN) for k in jax.random.split(next(keys), _EXPERTS)
    ]
    merit = {
        "values": _smooth_vectors(next(keys)),
        "context": jnp.zeros((context_size, inputs)),
        "experts": jax.tree.map(lambda *each: jnp.stack(each), *experts),
        "doubt": _perceptron(next(keys), inputs, _DOUBT_HIDDEN),
    }
    area = {"terms": _area_terms(next(keys))}
    return {"merit": merit, "area": area}


def _smooth_vectors(key: Any) -> Any:
    """Random vectors of values [V, E], alike for neighbouring values of a parameter."""
    places = np.concatenate([np.linspace(0, 1, count) for count in COUNTS])
    waves = np.cos(np.pi * np.outer(places, np.arange(1, _WAVES + 1)))
    waves /= np.arange(1, _WAVES + 1)
    mixes = jax.random.normal(key, (len(COUNTS), _WAVES, _WIDTH))
    return jnp.einsum("vw,vwe->ve", waves, mixes[OWNERS])


def _area_terms(key: Any) -> Any:
    """Random logarithms of factors [V, T] of each value, for each part of a die's area."""
    logs = np.concatenate(
        [np.log(values) - np.log(values[0]) for values in VALUES.values()]
    )
    powers = jax.random.uniform(key, (len(COUNTS), _AREA_PARTS))
    return logs[:, None] * powers[OWNERS] - logs.mean()


def _perceptron(key: Any, inputs: int, hidden: int) -> Params:
    keys = jax.random.split(key, 3)
    return {
        "first": dense(keys[0], inputs, hidden),
        "second": dense(keys[1], hidden, hidden),
        "out": dense(keys[2], hidden, 1),
    }


def _output(params: Params, x: Any) -> Any:
    x = jax.nn.leaky_relu(apply(params["first"], x), 0.1)
    x = jax.nn.leaky_relu(apply(params["second"], x), 0.1)
    return apply(params["out"], x)[..., 0]


def one_hot(genes: Any) -> Any:
    """Genes [B, G] as ones and zeros for each value of each parameter, [B, V]."""
    return jax.nn.one_hot(genes + jnp.array(STARTS[:-1]), STARTS[-1]).sum(axis=1)


def merit_of(merit: Params, hot: Any, context: Any) -> Any:
    """Merit [B] of designs [B, V] for applications with contexts [B, C]; more is better.

    It is what the experts expect in the mean, less the doubt.
    """
    code = merit_code(merit, hot, context)
    return expected_of(merit, code).mean(axis=0) - doubt_of(merit, code)


def merit_code(merit: Params, hot: Any, context: Any) -> Any:
    """Vectors of designs [B, V] for applications with contexts [B, C], [B, G * E]."""
    return _code(merit["values"], hot) * (1 + context @ merit["context"])


def expected_of(merit: Params, code: Any) -> Any:
    """The merit that each of K experts expects from codes, by regression, [K, B]."""
    return jax.vmap(_output, (0, None))(merit["experts"], code)


def doubt_of(merit: Params, code: Any) -> Any:
    """What is subtracted from the merit of designs by their codes, [B]; never negative.

    It learns where designs are infeasible or overestimated, so that the regression stays
    smooth there.
    """
    return jax.nn.relu(_output(merit["doubt"], code))


def log_area_of(area: Params, hot: Any) -> Any:
    """Logarithm of the area of designs [B, V] relative to the logs' mean, [B].

    The area is a sum of parts, and each part a product of one factor for each parameter.
    """
    return jax.nn.logsumexp(hot @ area["terms"], axis=1)


def _code(table: Any, hot: Any) -> Any:
    """The vectors of a design's values, side by side, [B, G * E]."""
    is_own = jnp.array(np.eye(len(COUNTS), dtype=np.float32)[OWNERS])
    spread = is_own[:, :, None] * table[:, None, :]
    return hot @ spread.reshape(len(table), -1)
