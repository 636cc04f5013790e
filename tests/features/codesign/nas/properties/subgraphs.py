"""Generated functions of one array, with smooth ops of many kinds.

Their derivatives are 0 nowhere, and do not underflow, so that a Jacobian shows every
dependence.
"""

from collections.abc import Callable
from random import Random

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

Step = Callable[[Array], Array]


def generated(seed: int) -> tuple[Callable[[Array], Array], tuple[int, ...]]:
    """A function of an array of this shape, which has three to six steps."""
    rng = Random(seed)
    shape = tuple(rng.choice((3, 4, 6)) for _ in range(rng.choice((2, 3))))
    now, steps = shape, list[Step]()
    for _ in range(rng.randrange(3, 7)):
        step = rng.choice(_CHOICES)(now, rng)
        made = jax.eval_shape(step, jax.ShapeDtypeStruct(now, "float32")).shape
        if 0 < np.prod(made) <= 200:
            steps.append(step)
            now = made

    def fn(x: Array) -> Array:
        for step in steps:
            x = step(x)
        return x

    return fn, shape


def _weights(rng: Random, *shape: int) -> Array:
    drawn = np.random.default_rng(rng.randrange(2**31)).normal(size=shape)
    return jnp.asarray(drawn, jnp.float32)


def _elementwise(shape: tuple[int, ...], rng: Random) -> Step:
    return rng.choice((jnp.arcsinh, lambda x: x + 0.5 * jnp.sin(x)))


def _dense(shape: tuple[int, ...], rng: Random) -> Step:
    dim = rng.randrange(len(shape)) if shape else 0
    if not shape:
        return jnp.arcsinh
    kernel = _weights(rng, shape[dim], rng.choice((3, 4)))
    return lambda x: jnp.moveaxis(jnp.tensordot(x, kernel, ((dim,), (0,))), -1, dim)


def _window(shape: tuple[int, ...], rng: Random) -> Step:
    """A depthwise convolution along one dim, all others being examples."""
    if not shape:
        return jnp.arcsinh
    dim, taps = rng.randrange(len(shape)), rng.choice((2, 3))
    stride, dilation = rng.choice(((1, 1), (2, 1), (1, 2)))
    kernel = _weights(rng, 1, 1, taps)

    def step(x: Array) -> Array:
        y = jnp.moveaxis(x, dim, -1)
        flat = y.reshape(-1, 1, y.shape[-1])
        z = lax.conv_general_dilated(
            flat, kernel, (stride,), "SAME", rhs_dilation=(dilation,)
        )
        return jnp.moveaxis(z.reshape(*y.shape[:-1], z.shape[-1]), -1, dim)

    return step


def _pool(shape: tuple[int, ...], rng: Random) -> Step:
    sizes = tuple(rng.choice((1, 2, 3)) for _ in shape)
    strides = tuple(rng.choice((1, 1, 2)) for _ in shape)
    return lambda x: lax.reduce_window(x, 0.0, lax.add, sizes, strides, "SAME")


def _reduced(shape: tuple[int, ...], rng: Random) -> Step:
    dim = rng.randrange(max(len(shape), 1))
    keeps = rng.random() < 0.5
    return lambda x: x.sum(dim if shape else None, keepdims=keeps and bool(shape))


def _softmax(shape: tuple[int, ...], rng: Random) -> Step:
    """Scaled, since a sum of what a softmax gives does not depend on its operand."""
    scale = _weights(rng, *shape)
    if not shape or shape[-1] < 3:
        return lambda x: x * scale
    return lambda x: jax.nn.softmax(jnp.arcsinh(x)) * scale


def _reshaped(shape: tuple[int, ...], rng: Random) -> Step:
    if rng.random() < 0.5 and len(shape) > 1:
        return lambda x: x.reshape(shape[0] * shape[1], *shape[2:])
    if shape and shape[0] % 2 == 0:
        return lambda x: x.reshape(2, shape[0] // 2, *shape[1:])
    return lambda x: x[None]


def _moved(shape: tuple[int, ...], rng: Random) -> Step:
    order = rng.sample(range(len(shape)), len(shape))
    at = rng.randrange(max(len(shape), 1))
    choices: list[Step] = [lambda x: x.transpose(order)]
    if shape:
        choices += [
            lambda x: jnp.flip(x, at),
            lambda x: lax.slice_in_dim(x, 1, None, 2, at) if x.shape[at] > 1 else x,
            lambda x: jnp.pad(
                x, [(1, 1) if d == at else (0, 0) for d in range(x.ndim)]
            ),
            lambda x: jnp.concatenate([jnp.arcsinh(x), x], at),
            lambda x: jnp.cumsum(x, at),
            lambda x: jnp.broadcast_to(x[:, None], (x.shape[0], 2, *x.shape[1:])),
        ]
    return rng.choice(choices)


def _residual(shape: tuple[int, ...], rng: Random) -> Step:
    inner = [rng.choice((_elementwise, _dense, _window))(shape, rng) for _ in range(2)]

    def step(x: Array) -> Array:
        y = inner[1](inner[0](x)) if inner[0](x).shape == x.shape else inner[0](x)
        return x + y if y.shape == x.shape else y

    return step


_CHOICES = (
    _elementwise,
    _dense,
    _window,
    _pool,
    _reduced,
    _softmax,
    _reshaped,
    _moved,
    _residual,
)
