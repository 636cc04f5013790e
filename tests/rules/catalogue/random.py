"""Random numbers: every sampler of `jax.random`, with raw keys and typed ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.extend.random import threefry2x32_p

from tests.rules.catalogue import Example

RAW = np.array([17, 42], np.uint32)
MANY = np.arange(16, dtype=np.uint32).reshape(4, 2, 2)
RBG = np.arange(16, dtype=np.uint32).reshape(4, 4)
RATES = np.linspace(0.5, 3.0, 32, dtype=np.float32).reshape(8, 4)
LOGITS = np.sin(np.arange(32, dtype=np.float32)).reshape(8, 4)
COVARIANCE = np.eye(4, dtype=np.float32) + 0.5
SHAPE = (8, 4)

_BY_SHAPE = {
    "ball": lambda k: random.ball(k, 4, shape=(8,)),
    "bernoulli": lambda k: random.bernoulli(k, 0.3, SHAPE),
    "beta": lambda k: random.beta(k, 2.0, 3.0, SHAPE),
    "bits": lambda k: random.bits(k, SHAPE),
    "bits of 8": lambda k: random.bits(k, SHAPE, "uint8"),
    "bits of 16": lambda k: random.bits(k, SHAPE, "uint16"),
    "bits, odd": lambda k: random.bits(k, (3, 5)),
    "bits, none": lambda k: random.bits(k, (8, 0)),
    "bits, scalar": lambda k: random.bits(k),
    "binomial": lambda k: random.binomial(k, 10, 0.4, SHAPE),
    "categorical": lambda k: random.categorical(k, LOGITS),
    "categorical, in rows": lambda k: random.categorical(k, LOGITS, axis=0),
    "categorical, shaped": lambda k: random.categorical(k, LOGITS, shape=(2, 8)),
    "categorical, not replaced": lambda k: random.categorical(
        k, LOGITS, shape=(2, 8), replace=False
    ),
    "cauchy": lambda k: random.cauchy(k, SHAPE),
    "chisquare": lambda k: random.chisquare(k, 3.0, SHAPE),
    "choice": lambda k: random.choice(k, 16, (8,)),
    "choice, weighted": lambda k: random.choice(
        k, 4, (8,), p=np.float32([0.1, 0.2, 0.3, 0.4])
    ),
    "choice, not replaced": lambda k: random.choice(k, LOGITS, (4,), replace=False),
    "dirichlet": lambda k: random.dirichlet(k, jnp.ones(4), (8,)),
    "double sided maxwell": lambda k: random.double_sided_maxwell(k, 0.0, 1.0, SHAPE),
    "exponential": lambda k: random.exponential(k, SHAPE),
    "f": lambda k: random.f(k, 3.0, 4.0, SHAPE),
    "gamma": lambda k: random.gamma(k, RATES),
    "generalized normal": lambda k: random.generalized_normal(k, 1.5, SHAPE),
    "geometric": lambda k: random.geometric(k, 0.3, SHAPE),
    "gumbel": lambda k: random.gumbel(k, SHAPE),
    "laplace": lambda k: random.laplace(k, SHAPE),
    "loggamma": lambda k: random.loggamma(k, RATES),
    "logistic": lambda k: random.logistic(k, SHAPE),
    "lognormal": lambda k: random.lognormal(k, 0.5, SHAPE),
    "maxwell": lambda k: random.maxwell(k, SHAPE),
    "multinomial": lambda k: random.multinomial(k, 8.0, jnp.full((8, 4), 0.25)),
    "multivariate normal": lambda k: random.multivariate_normal(
        k, np.zeros(4, np.float32), COVARIANCE, (8,)
    ),
    "normal": lambda k: random.normal(k, SHAPE),
    "normal, half": lambda k: random.normal(k, SHAPE, jnp.bfloat16),
    "normal, complex": lambda k: random.normal(k, SHAPE, jnp.complex64),
    "orthogonal": lambda k: random.orthogonal(k, 4, (8,)),
    "pareto": lambda k: random.pareto(k, 2.0, SHAPE),
    "permutation": lambda k: random.permutation(k, 16),
    "permutation of rows": lambda k: random.permutation(k, LOGITS),
    "permutation, independent": lambda k: random.permutation(
        k, LOGITS, independent=True
    ),
    "poisson": lambda k: random.poisson(k, RATES * 8),
    "rademacher": lambda k: random.rademacher(k, SHAPE),
    "randint": lambda k: random.randint(k, SHAPE, -5, 1000),
    "randint, small": lambda k: random.randint(k, SHAPE, 0, 7, "int8"),
    "rayleigh": lambda k: random.rayleigh(k, 1.0, SHAPE),
    "t": lambda k: random.t(k, 4.0, SHAPE),
    "triangular": lambda k: random.triangular(k, 0.0, 0.5, 1.0, SHAPE),
    "truncated normal": lambda k: random.truncated_normal(k, -1.0, 2.0, SHAPE),
    "uniform": lambda k: random.uniform(k, SHAPE),
    "uniform, half": lambda k: random.uniform(k, SHAPE, jnp.float16),
    "wald": lambda k: random.wald(k, 1.0, SHAPE),
    "weibull": lambda k: random.weibull_min(k, 1.0, 2.0, SHAPE),
}
"""Samplers that take one key; gradients and keys of other kinds follow below."""


def _wrapped(words, impl=None):
    return random.wrap_key_data(words, impl=impl)


def _data(fn):
    """`fn` of typed keys, with words of keys in and out."""
    return lambda words, *rest: random.key_data(fn(_wrapped(words), *rest))


def _vmapped(fn, words):
    return jax.vmap(jax.vmap(fn))(_wrapped(words))


def _threefry(first, second, x, y):
    return threefry2x32_p.bind(first, second, x, y)


EXAMPLES: list[Example] = [
    *(Example(name, fn, (RAW,)) for name, fn in _BY_SHAPE.items()),
    Example("typed key", lambda w: random.normal(_wrapped(w), SHAPE), (RAW,)),
    Example(
        "constant key", lambda x: x * random.normal(random.key(3), x.shape), (LOGITS,)
    ),
    Example(
        "seeds", lambda s: random.key_data(jax.vmap(random.key)(s)), (np.arange(8),)
    ),
    Example("split", random.split, (RAW,)),
    Example("split of many", _data(lambda k: random.split(k[0, 0], (8, 2))), (MANY,)),
    Example("split of each", _data(jax.vmap(jax.vmap(random.split))), (MANY,)),
    Example("fold in", _data(random.fold_in), (RAW, np.int32(7))),
    Example(
        "fold in of each",
        _data(jax.vmap(random.fold_in)),
        (MANY.reshape(8, 2), np.arange(8, dtype=np.int32)),
    ),
    Example(
        "fold in of one by each",
        _data(jax.vmap(random.fold_in, (None, 0))),
        (RAW, np.arange(8, dtype=np.int32)),
    ),
    Example("clone", _data(random.clone), (MANY,)),
    Example(
        "bits of each", lambda w: _vmapped(lambda k: random.bits(k, (4,)), w), (MANY,)
    ),
    Example(
        "gamma of each",
        lambda w: _vmapped(lambda k: random.gamma(k, RATES[0]), w),
        (MANY,),
    ),
    Example(
        "keys per row", lambda w: jax.vmap(random.normal)(random.split(w, 8)), (RAW,)
    ),
    Example(
        "gradient of gamma",
        lambda w, a: jax.grad(lambda a: random.gamma(w, a).sum())(a),
        (RAW, RATES),
    ),
    Example(
        "gradient of loggamma",
        lambda w, a: jax.grad(lambda a: random.loggamma(w, a).sum())(a),
        (RAW, RATES),
    ),
    Example(
        "gamma's own gradient",
        lambda a, x: lax.random_gamma_grad(a, x),
        (RATES, RATES[::-1]),
    ),
    Example(
        "gradient through dropout",
        lambda w, x: jax.grad(
            lambda x: (x * x * random.bernoulli(w, 0.9, x.shape)).sum()
        )(x),
        (RAW, LOGITS),
    ),
    Example(
        "threefry",
        _threefry,
        (RAW[0], RAW[1], *np.arange(64, dtype=np.uint32).reshape(2, 8, 4)),
    ),
    Example("rbg", lambda w: random.normal(_wrapped(w[0], "rbg"), SHAPE), (RBG,)),
    Example(
        "rbg of each",
        lambda w: jax.vmap(lambda k: random.bits(k, (4,)))(_wrapped(w, "rbg")),
        (RBG,),
    ),
    Example(
        "rbg split and folded",
        lambda w: random.key_data(
            jax.vmap(lambda k: random.fold_in(random.split(k)[0], 3))(
                _wrapped(w, "rbg")
            )
        ),
        (RBG,),
    ),
    Example(
        "unsafe rbg",
        lambda w: jax.vmap(lambda k: random.bits(random.split(k)[1], (4,)))(
            _wrapped(w, "unsafe_rbg")
        ),
        (RBG,),
    ),
    *(
        Example(
            f"{impl} of each",
            lambda s, impl=impl: jax.vmap(
                lambda i: random.bits(random.split(random.key(i, impl=impl))[0], (4,))
            )(s),
            (np.arange(8),),
        )
        for impl in ("threefry4x32", "philox2x32", "philox4x32")
    ),
    Example("bit generator", lambda w: lax.rng_bit_generator(w[0], SHAPE), (RBG,)),
    Example(
        "while loop of keys",
        lambda w: lax.fori_loop(
            0, 3, lambda i, x: x + random.normal(random.fold_in(w, i), SHAPE), LOGITS
        ),
        (RAW,),
    ),
]
