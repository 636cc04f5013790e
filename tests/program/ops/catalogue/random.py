"""Random numbers: every sampler of `jax.random`, with raw keys and typed ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.extend.random import threefry2x32_p

from tests.program.ops.catalogue import Example
from tests.program.ops.catalogue.gather import each

RAW = np.array([17, 42], np.uint32)
MANY = np.arange(16, dtype=np.uint32).reshape(4, 2, 2)
RBG = np.arange(16, dtype=np.uint32).reshape(4, 4)
RATES = np.linspace(0.5, 3.0, 32, dtype=np.float32).reshape(8, 4)
LOGITS = np.sin(np.arange(32, dtype=np.float32)).reshape(8, 4)
COVARIANCE = np.eye(4, dtype=np.float32) + 0.5
SHAPE = (8, 4)

_BITS = {
    "bits": lambda k: random.bits(k, SHAPE),
    "bits of 8": lambda k: random.bits(k, SHAPE, "uint8"),
    "bits of 16": lambda k: random.bits(k, SHAPE, "uint16"),
    "bits, odd": lambda k: random.bits(k, (3, 5)),
    "bits, none": lambda k: random.bits(k, (8, 0)),
    "bits, scalar": lambda k: random.bits(k),
    "randint": lambda k: random.randint(k, SHAPE, -5, 1000),
    "randint, small": lambda k: random.randint(k, SHAPE, 0, 7, "int8"),
    "bernoulli": lambda k: random.bernoulli(k, 0.3, SHAPE),
    "rademacher": lambda k: random.rademacher(k, SHAPE),
    "uniform": lambda k: random.uniform(k, SHAPE),
    "uniform, half": lambda k: random.uniform(k, SHAPE, jnp.float16),
    "normal": lambda k: random.normal(k, SHAPE),
    "normal, half": lambda k: random.normal(k, SHAPE, jnp.bfloat16),
    "normal, complex": lambda k: random.normal(k, SHAPE, jnp.complex64),
}
_TRANSFORMED = {
    "cauchy": lambda k: random.cauchy(k, SHAPE),
    "exponential": lambda k: random.exponential(k, SHAPE),
    "geometric": lambda k: random.geometric(k, 0.3, SHAPE),
    "gumbel": lambda k: random.gumbel(k, SHAPE),
    "laplace": lambda k: random.laplace(k, SHAPE),
    "logistic": lambda k: random.logistic(k, SHAPE),
    "lognormal": lambda k: random.lognormal(k, 0.5, SHAPE),
    "maxwell": lambda k: random.maxwell(k, SHAPE),
    "pareto": lambda k: random.pareto(k, 2.0, SHAPE),
    "rayleigh": lambda k: random.rayleigh(k, 1.0, SHAPE),
    "triangular": lambda k: random.triangular(k, 0.0, 0.5, 1.0, SHAPE),
    "truncated normal": lambda k: random.truncated_normal(k, -1.0, 2.0, SHAPE),
    "wald": lambda k: random.wald(k, 1.0, SHAPE),
    "weibull": lambda k: random.weibull_min(k, 1.0, 2.0, SHAPE),
    "double sided maxwell": lambda k: random.double_sided_maxwell(k, 0.0, 1.0, SHAPE),
}
_CHOSEN = {
    "categorical": lambda k: random.categorical(k, LOGITS),
    "categorical, in rows": lambda k: random.categorical(k, LOGITS, axis=0),
    "categorical, shaped": lambda k: random.categorical(k, LOGITS, shape=(2, 8)),
    "categorical, not replaced": lambda k: random.categorical(
        k, LOGITS, shape=(2, 8), replace=False
    ),
    "choice": lambda k: random.choice(k, 16, (8,)),
    "choice, weighted": lambda k: random.choice(
        k, 4, (8,), p=np.float32([0.1, 0.2, 0.3, 0.4])
    ),
    "choice, not replaced": lambda k: random.choice(k, LOGITS, (4,), replace=False),
    "permutation": lambda k: random.permutation(k, 16),
    "permutation of rows": lambda k: random.permutation(k, LOGITS),
    "permutation, independent": lambda k: random.permutation(
        k, LOGITS, independent=True
    ),
}
_GAMMAS = {
    "ball": lambda k: random.ball(k, 4, shape=(8,)),
    "beta": lambda k: random.beta(k, 2.0, 3.0, SHAPE),
    "chisquare": lambda k: random.chisquare(k, 3.0, SHAPE),
    "dirichlet": lambda k: random.dirichlet(k, jnp.ones(4), (8,)),
    "f": lambda k: random.f(k, 3.0, 4.0, SHAPE),
    "gamma": lambda k: random.gamma(k, RATES),
    "generalized normal": lambda k: random.generalized_normal(k, 1.5, SHAPE),
    "loggamma": lambda k: random.loggamma(k, RATES),
    "t": lambda k: random.t(k, 4.0, SHAPE),
}
_LOOPS = {
    "binomial": lambda k: random.binomial(k, 10, 0.4, SHAPE),
    "multinomial": lambda k: random.multinomial(k, 8.0, jnp.full((8, 4), 0.25)),
    "poisson": lambda k: random.poisson(k, RATES * 8),
    "rejected": lambda k: lax.fori_loop(
        0, 3, lambda i, x: x + random.normal(random.fold_in(k, i), SHAPE), LOGITS
    ),
}
_FACTORED = {
    "multivariate normal": lambda k: random.multivariate_normal(
        k, np.zeros(4, np.float32), COVARIANCE, (8,)
    ),
    "orthogonal": lambda k: random.orthogonal(k, 4, (8,)),
}


def _wrapped(words, impl=None):
    return random.wrap_key_data(words, impl=impl)


def _data(fn):
    """`fn` of typed keys, with words of keys in and out."""
    return lambda words, *rest: random.key_data(fn(_wrapped(words), *rest))


def _of_keys(words):
    """What is done to typed keys [4, 2], as words."""
    many = _wrapped(words)
    keys = many.reshape(8)
    numbers = jnp.arange(8)
    twice = lambda fn: jax.vmap(jax.vmap(fn))  # noqa: E731
    found = {
        "split": random.split(words[0, 0]),
        "split in two dims": random.split(keys[0], (8, 2)),
        "split each": twice(random.split)(many),
        "folded": random.fold_in(keys[0], 7),
        "folded each": jax.vmap(random.fold_in)(keys, numbers),
        "folded one": jax.vmap(random.fold_in, (None, 0))(keys[0], numbers),
        "cloned": random.clone(many),
        "seeds": jax.vmap(random.key)(numbers),
    }
    typed = {name: random.key_data(k) for name, k in found.items() if name != "split"}
    return typed | {
        "raw": found["split"],
        "bits each": twice(lambda k: random.bits(k, (4,)))(many),
        "gamma each": twice(lambda k: random.gamma(k, RATES[0]))(many),
        "keys per row": jax.vmap(random.normal)(random.split(keys[0], 8)),
    }


def _of_other_keys(words):
    """Keys whose bits come from the compiler's generator, or from other hashes."""
    rbg, unsafe = _wrapped(words, "rbg"), _wrapped(words, "unsafe_rbg")
    wide = jax.vmap(lambda i: random.key(i, impl="threefry4x32"))(jnp.arange(8))
    return {
        "one": random.normal(rbg[0], SHAPE),
        "each": jax.vmap(lambda k: random.bits(k, (4,)))(rbg),
        "split and folded": random.key_data(
            jax.vmap(lambda k: random.fold_in(random.split(k)[0], 3))(rbg)
        ),
        "unsafe": jax.vmap(lambda k: random.bits(random.split(k)[1], (4,)))(unsafe),
        "generator": lax.rng_bit_generator(words[0], SHAPE),
        "wide": jax.vmap(lambda k: random.bits(random.split(k)[0], (4,)))(wide),
    }


def _gradients(words, rates):
    def dropped(x):
        return (x * x * random.bernoulli(words, 0.9, x.shape)).sum()

    return {
        "gamma": jax.grad(lambda a: random.gamma(words, a).sum())(rates),
        "alone": lax.random_gamma_grad(rates, rates[::-1]),
        "dropout": jax.grad(dropped)(rates),
    }


def _threefry(first, second, x, y):
    return threefry2x32_p.bind(first, second, x, y)


SAMPLERS = _BITS | _TRANSFORMED | _CHOSEN | _GAMMAS | _LOOPS | _FACTORED
"""Every sampler, as functions of a key; those not in `EXAMPLES` compile slowly."""

_FEW = ("gamma", "loggamma", "rejected", "multivariate normal")

EXAMPLES: list[Example] = [
    Example("random bits", each(**_BITS), (RAW,)),
    Example("random numbers by closed forms", each(**_TRANSFORMED), (RAW,)),
    Example("random choices", each(**_CHOSEN), (RAW,)),
    Example("random samplers", each(**{name: SAMPLERS[name] for name in _FEW}), (RAW,)),
    Example("typed key", lambda w: random.normal(_wrapped(w), SHAPE), (RAW,)),
    Example(
        "constant key", lambda x: x * random.normal(random.key(3), x.shape), (LOGITS,)
    ),
    Example("keys", _of_keys, (MANY,)),
    Example("other keys", _of_other_keys, (RBG,), since=(0, 11)),
    Example("gradients through random numbers", _gradients, (RAW, RATES)),
    Example(
        "threefry",
        _threefry,
        (RAW[0], RAW[1], *np.arange(64, dtype=np.uint32).reshape(2, 8, 4)),
    ),
]
