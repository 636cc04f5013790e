"""Forms of groups of ops, and functions of several ops each."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.features.deploy.edge_values import (
    DIVISORS,
    EDGE,
    INF,
    INTEGERS,
    LEAST,
    MOST,
    PLAIN,
    SMALL,
    WILD,
)


@dataclass(frozen=True)
class Group:
    """A function, arguments to deploy it with, and further arguments to call it with."""

    fn: Any
    sample: tuple[Any, ...]
    calls: tuple[tuple[Any, ...], ...] = ()


def unary(*fns, calls=(EDGE, WILD), sample=PLAIN):
    """Elementwise functions of one array."""
    return Group(lambda x: [fn(x) for fn in fns], (sample,), tuple((c,) for c in calls))


REVERSED = PLAIN[::-1].copy()


def binary(*fns, sample=(PLAIN, REVERSED), calls=None):
    """Elementwise functions of two arrays."""
    pairs = ((EDGE, WILD), (WILD, EDGE), (EDGE, EDGE[::-1].copy()))
    return Group(lambda x, y: [fn(x, y) for fn in fns], sample, calls or pairs)


def table(rows=4, columns=6):
    return np.arange(rows * columns, dtype=np.float32).reshape(rows, columns) / 7 - 1


INT_PAIRS = ((INTEGERS, DIVISORS), (DIVISORS, INTEGERS))
INTS = (SMALL, SMALL[::-1].copy())
PLACES = np.int32([0, 2, 1, 3])
OUTSIDE = (np.int32([-1, 4, 100, -100]), np.int32([LEAST, MOST, 3, -4]))
GRID, GRID_EDGE = PLAIN.reshape(3, 4), EDGE.reshape(3, 4)


def at_places(*fns):
    """Functions of a table and of row numbers, which may lie outside of it."""
    x = table()
    return Group(
        lambda x, i: [fn(x, i) for fn in fns],
        (x, PLACES),
        tuple((x, each) for each in OUTSIDE),
    )


def reduced(*fns):
    return Group(
        lambda x: [fn(x, axis) for fn in fns for axis in (0, 1)],
        (GRID,),
        ((GRID_EDGE,), (np.full_like(GRID, -INF),), (np.full_like(GRID, 2.0),)),
    )


def cast(*dtypes, sample=PLAIN, calls=(EDGE, WILD)):
    return Group(
        lambda x: [x.astype(d) for d in dtypes], (sample,), tuple((c,) for c in calls)
    )


def loop(x, n):
    return lax.while_loop(
        lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 0.5 + c[0]), (0, x)
    )


def caches(cache, new, at):
    return jax.vmap(lambda c, n, i: lax.dynamic_update_slice(c, n, (i, 0)))(
        cache, new, at
    )


def slice_writes(x, v):
    return [
        x.at[1:].set(v[1:]), x.at[:, 1:3].add(v[:, 1:3]), x.at[0].set(1.0),
        x.at[::2, 1].mul(2.0), x.at[-1, 2:].set(0), x.at[:2, 1:3].max(v[2:, 2:4]),
    ]  # fmt: skip


def spectra(x):
    z = jnp.fft.rfft(x, axis=-1)
    full = jnp.fft.fft(x * (1 + 2j), axis=0)
    return [
        jnp.abs(z), z.real, jnp.cos(jnp.angle(z + 2.0)), jnp.fft.irfft(z * 2, n=12),
        jnp.abs(full) ** 2, jnp.fft.ifft(full, axis=0).imag, jnp.abs(jnp.fft.fft2(x)),
    ]  # fmt: skip


def complex_math(x, y):
    z, w = lax.complex(x, y), lax.complex(y, x + 3)
    made = (z * w, z / w, jnp.exp(z), jnp.log(w), jnp.sqrt(w), z**3, jnp.conj(z) - w)
    both = jnp.concatenate([z[:3], w[3:]]).reshape(3, 4)
    more = (both @ both.T, both.sum(1), jnp.where(x > 0, z, w))
    more += (jnp.cumsum(z), z[::-1])
    return [part for each in made + more for part in (each.real, each.imag)]
