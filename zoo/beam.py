"""Greedy and beam decoding of any program that scores the next token.

A beam keeps the `width` best beginnings. One that has ended keeps its place as long as
its score is among the best, so a width of 1 is greedy decoding, and a width of all
sequences finds the best one. Scores are log-probabilities divided by the length penalty
of Wu et al. ("Google's Neural Machine Translation System", 2016), ((5 + n) / 6) ** alpha
for n tokens.

Letters: B batch, K width, T longest result, V vocab.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

NextFn = Callable[[Array, Array, Any], tuple[Array, Any]]
"""(tokens [B], position, state) -> scores [B, V] of the token after them, next state.

The scores may be of any scale. Leaves of the state have the batch on one dim.
"""

NEVER = -1e30
"""A log-probability that no beginning has."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How many tokens are made, and how.

    width: beginnings that are kept.
    alpha: of the length penalty; 0 is none, more prefers longer results.
    start, end, pad: tokens before the first, last, and after the last one.
    batch_dim: dim of the batch in leaves of the state.
    """

    length: int
    width: int = 1
    alpha: float = 0.6
    start: int = 0
    end: int = 1
    pad: int = 0
    batch_dim: int = 0

    def __post_init__(self) -> None:
        if self.length < 1 or self.width < 1:
            raise ValueError(
                f"length and width are at least 1, not {self.length} and {self.width}"
            )
        if not 0 <= self.alpha < inf:
            raise ValueError(
                f"alpha is a finite number of at least 0, not {self.alpha}"
            )


class Beams(NamedTuple):
    """Prefixes [B, K], best first: tokens [B, K, T], log-probability, length, and end."""

    tokens: Array
    log_probability: Array
    length: Array
    ended: Array


def greedy(next_fn: NextFn, state: Any, batch: int, how: Decoding) -> Array:
    """Tokens [B, T]: the best one each time, and pads after the end."""

    def one(carry: tuple, position: Array) -> tuple[tuple, Array]:
        last, ended, state = carry
        scores, state = next_fn(last, position, state)
        token = jnp.where(ended, how.pad, jnp.argmax(scores, axis=-1))
        return (token, ended | (token == how.end), state), token

    first = (jnp.full(batch, how.start), jnp.zeros(batch, bool), state)
    return jax.lax.scan(one, first, jnp.arange(how.length))[1].T


def beam(next_fn: NextFn, state: Any, batch: int, how: Decoding) -> Beams:
    """The best `width` results for each of the batch; stops when all have ended."""
    state = jax.tree.map(lambda x: jnp.repeat(x, how.width, how.batch_dim), state)

    def is_going(carry: tuple) -> Array:
        position, beams, _ = carry
        return (position < how.length) & ~jnp.all(beams.ended)

    def one(carry: tuple) -> tuple:
        position, beams, state = carry
        before = jax.lax.dynamic_index_in_dim(
            beams.tokens, jnp.maximum(position - 1, 0), axis=2, keepdims=False
        )
        last = jnp.where(position == 0, how.start, before)
        scores, state = next_fn(last.ravel(), position, state)
        beams, parents = extend(
            beams, scores.reshape(batch, how.width, -1), position, how
        )
        return position + 1, beams, jax.tree.map(partial(follow, parents), state)

    def follow(parents: Array, x: Array) -> Array:
        dim = how.batch_dim
        apart = x.reshape(*x.shape[:dim], batch, how.width, *x.shape[dim + 1 :])
        return of_parents(apart, parents, dim).reshape(x.shape)

    return jax.lax.while_loop(is_going, one, (0, _first(batch, how), state))[1]


def extend(
    beams: Beams, scores: Array, position: Array, how: Decoding
) -> tuple[Beams, Array]:
    """The best prefixes of one more token, and the prefix [B, K] that each extends.

    scores: [B, K, V]. A prefix that has ended is extended by a pad of probability 1.
    """
    vocab = scores.shape[-1]
    ended = beams.ended[..., None]
    pads = jnp.where(jnp.arange(vocab) == how.pad, 0.0, NEVER)
    step = jnp.where(ended, pads, jax.nn.log_softmax(scores.astype(jnp.float32)))
    log_probability = beams.log_probability[..., None] + step
    length = beams.length[..., None] + jnp.where(ended, 0, 1)
    ranks = log_probability / penalty(length, how.alpha)
    chosen = jax.lax.top_k(ranks.reshape(len(ranks), -1), how.width)[1]
    parents, token = chosen // vocab, chosen % vocab

    old = Beams(*(of_parents(x, parents) for x in beams))
    flat = log_probability.reshape(len(ranks), -1)
    tokens = jax.lax.dynamic_update_index_in_dim(old.tokens, token, position, axis=2)
    longer = Beams(
        tokens=tokens,
        log_probability=jnp.take_along_axis(flat, chosen, axis=1),
        length=old.length + jnp.where(old.ended, 0, 1),
        ended=old.ended | (token == how.end),
    )
    return longer, parents


def of_parents(x: Array, parents: Array, dim: int = 0) -> Array:
    """Beginnings, on dims `dim` and `dim` + 1 of x [.., B, K, ..], taken by `parents`.

    A batch of gathers, not one of a flat index: each stays with its part of the batch.
    """
    take = partial(jnp.take, axis=dim, mode="clip")
    return jax.vmap(take, in_axes=(dim, 0), out_axes=dim)(x, parents)


def penalty(length: Array, alpha: float) -> Array:
    """What the log-probability of `length` tokens is divided by."""
    return ((5 + length) / 6) ** alpha


def _first(batch: int, how: Decoding) -> Beams:
    """One beginning without a token; the others are none that could be chosen."""
    shape = (batch, how.width)
    return Beams(
        tokens=jnp.full((*shape, how.length), how.pad),
        log_probability=jnp.where(jnp.arange(how.width) == 0, 0.0, NEVER)
        + jnp.zeros(shape),
        length=jnp.zeros(shape, int),
        ended=jnp.zeros(shape, bool),
    )
