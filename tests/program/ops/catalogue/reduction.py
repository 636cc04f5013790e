"""Reductions with every monoid, with and without a recognised computation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.program.ops.catalogue import Example

_RNG = np.random.default_rng(11)
_X = _RNG.uniform(0.5, 1.5, (8, 4, 6)).astype(np.float32)
_I = _RNG.integers(-9, 9, (8, 4)).astype(np.int32)
_U = _RNG.integers(0, 9, (8, 4)).astype(np.uint8)
_B = _RNG.integers(0, 2, (8, 4)).astype(bool)
_C = (_RNG.normal(size=(8, 4)) + 1j * _RNG.normal(size=(8, 4))).astype(np.complex64)
_TIES = _RNG.integers(0, 3, (4, 16)).astype(np.float32)
_NAN = np.where(_RNG.uniform(size=(4, 16)) < 0.1, np.nan, _TIES).astype(np.float32)
_LOW = np.full((4, 8), -np.inf, np.float32)


def _half(x):
    return jnp.sum(x.astype(jnp.bfloat16), 0, dtype=jnp.bfloat16)


def _known(x):
    return lax.reduce(x, np.float32(0), lambda a, b: a + b, (1,))


def _known_max(x, start):
    return lax.reduce(x, start, lambda a, b: lax.max(b, a), (0, 2))


def _known_jnp(x):
    return lax.reduce(x, np.float32(1), lambda a, b: jnp.multiply(a, b), (1,))


def _not_neutral(x):
    return lax.reduce(x, np.float32(3), lambda a, b: a + b, (1,))


def _unknown(x):
    return lax.reduce(x, np.float32(-np.inf), jnp.logaddexp, (1,))


def _pairs(x, i):
    def best(a, b):
        first = a[0] >= b[0]
        return lax.select(first, a[0], b[0]), lax.select(first, a[1], b[1])

    return lax.reduce((x, i), (np.float32(-np.inf), np.int32(0)), best, (1,))


def _gradient(reduce):
    return jax.grad(lambda x: jnp.sum(jnp.sin(reduce(x))))


def _mapped(x):
    return lax.psum(x, "i"), lax.pmax(x, "i"), x - lax.pmin(x, "i")


EXAMPLES: list[Example] = [
    Example("reduce_mapped", jax.vmap(_mapped, axis_name="i"), (_X,)),
    Example("reduce_sum_middle", lambda x: jnp.sum(x, 1), (_X,)),
    Example("reduce_sum_all", lambda x: jnp.sum(x), (_X,)),
    Example("reduce_sum_none", lambda x: lax.reduce_sum(x, ()), (_X,)),
    Example("reduce_sum_two", lambda x: jnp.sum(x, (0, 2)), (_X,)),
    Example("reduce_sum_int", lambda x: jnp.sum(x, 0), (_I,)),
    Example("reduce_sum_complex", lambda x: jnp.sum(x, 0), (_C,)),
    Example("reduce_sum_half", _half, (_X,)),
    Example("reduce_sum_keepdims", lambda x: jnp.sum(x, 1, keepdims=True), (_X,)),
    Example("reduce_prod", lambda x: jnp.prod(x, 0), (_X,)),
    Example("reduce_prod_int", lambda x: jnp.prod(x, 1), (_I,)),
    Example("reduce_max", lambda x: jnp.max(x, (1, 2)), (_X,)),
    Example("reduce_min", lambda x: jnp.min(x, 0), (_X,)),
    Example("reduce_max_int", lambda x: jnp.max(x, 0), (_I,)),
    Example("reduce_min_uint8", lambda x: jnp.min(x, 0), (_U,)),
    Example("reduce_max_bool", lambda x: lax.reduce_max(x, (0,)), (_B,)),
    Example("reduce_min_bool", lambda x: lax.reduce_min(x, (0,)), (_B,)),
    Example("reduce_max_complex", lambda x: lax.reduce_max(x, (0,)), (_C,)),
    Example("reduce_max_nan", lambda x: lax.reduce_max(x, (1,)), (_NAN,)),
    Example("reduce_min_nan", lambda x: lax.reduce_min(x, (1,)), (_NAN,)),
    Example("reduce_and", lambda x: jnp.all(x, 0), (_B,)),
    Example("reduce_or", lambda x: jnp.any(x, 1), (_B,)),
    Example("reduce_xor", lambda x: lax.reduce_xor(x, (0,)), (_B,)),
    Example("reduce_and_int", lambda x: lax.reduce_and(x, (0,)), (_I,)),
    Example("reduce_or_int", lambda x: lax.reduce_or(x, (1,)), (_I,)),
    Example("reduce_xor_int", lambda x: lax.reduce_xor(x, (0,)), (_I,)),
    Example("reduce_known_sum", _known, (_X,)),
    Example("reduce_known_max", _known_max, (_X, np.float32(1))),
    Example("reduce_known_jnp", _known_jnp, (_X,)),
    Example("reduce_not_neutral", _not_neutral, (_X,)),
    Example("reduce_unknown", _unknown, (_X,)),
    Example(
        "reduce_pairs", _pairs, (_TIES, np.arange(64, dtype=np.int32).reshape(4, 16))
    ),
    Example("argmax", lambda x: jnp.argmax(x, 1), (_X,)),
    Example("argmin_first", lambda x: jnp.argmin(x, 0), (_X,)),
    Example("argmax_ties", lambda x: jnp.argmax(x, 1), (_TIES,)),
    Example("argmin_ties", lambda x: jnp.argmin(x, 1), (_TIES,)),
    Example("argmax_nan", lambda x: jnp.argmax(x, 1), (_NAN,)),
    Example("argmin_all_equal", lambda x: jnp.argmin(-x, 1), (_LOW,)),
    Example("argmax_bool", lambda x: jnp.argmax(x, 0), (_B,)),
    Example("argmax_int", lambda x: lax.argmax(x, 0, np.int8), (_I,)),
    Example("argmin_uint8", lambda x: lax.argmin(x, 0, np.uint32), (_U,)),
    Example("grad_reduce_sum", _gradient(lambda x: jnp.sum(x, 1)), (_X,)),
    Example("grad_reduce_prod", _gradient(lambda x: jnp.prod(x, 1)), (_X,)),
    Example("grad_reduce_max", _gradient(lambda x: jnp.max(x, 1)), (_X,)),
    Example("grad_reduce_min", _gradient(lambda x: jnp.min(x, 2)), (_X,)),
    Example("logsumexp", lambda x: jax.nn.logsumexp(x, 1), (_X,)),
    Example("softmax", lambda x: jax.nn.softmax(x, 0), (_X,)),
]
