"""Matrix products of every form, ragged and scaled ones too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.program.ops.catalogue import Example

_RNG = np.random.default_rng(0)


def _normal(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(np.float32)


def _ints(*shape: int) -> np.ndarray:
    return _RNG.integers(-5, 5, shape).astype(np.int8)


ROWS = _normal(8, 4)
EXPERTS = _normal(4, 4, 6)
OUT = _normal(8, 6)
SIZES = np.array([3, 0, 4, 1], np.int32)
SHORT = np.array([2, 1, 0, 3], np.int32)


def _grad(fn: Callable) -> Callable:
    """Gradients of a weighted sum of the result by the first two arguments."""

    def loss(x, y, *rest):
        return jnp.sum(jnp.sin(fn(x, y, *rest).astype(jnp.float32)))

    return jax.grad(loss, (0, 1))


def _dot(numbers, x, y, **options):
    return lax.dot_general(x, y, numbers, **options)


def _with_grad(name: str, fn: Callable, *args) -> list[Example]:
    return [Example(name, fn, args), Example(f"{name} grad", _grad(fn), args)]


def _ragged(x, y, sizes, dims, left_ragged, groups):
    numbers = lax.RaggedDotDimensionNumbers(dims, [left_ragged], groups)
    return lax.ragged_dot_general(x, y, sizes, numbers)


def _ragged_rows(x, y, sizes):
    """[m, k] by [g, k, n] to [m, n]."""
    return _ragged(x, y, sizes, (([1], [1]), ([], [])), 0, [0])


def _ragged_batched_rows(x, y, sizes):
    """[b, m, k] by [g, b, k, n] to [b, m, n]."""
    return _ragged(x, y, sizes, (([2], [2]), ([0], [1])), 1, [0])


def _ragged_contracted(x, y, sizes):
    """[m, k] by [m, n] to [g, k, n]."""
    return _ragged(x, y, sizes, (([0], [0]), ([], [])), 0, [])


def _ragged_batched_contracted(x, y, sizes):
    """[b, m, k] by [b, m, n] to [g, b, k, n]."""
    return _ragged(x, y, sizes, (([1], [1]), ([0], [0])), 1, [])


def _ragged_batch(x, y, sizes):
    """[b, m, k] by [b, k, n] to [b, m, n], in groups of b."""
    return _ragged(x, y, sizes, (([2], [1]), ([0], [0])), 0, [])


def _experts(x, first, second, sizes):
    """A mixture of experts whose rows are sorted by expert."""
    hidden = jax.nn.relu(lax.ragged_dot(x, first, sizes))
    return lax.ragged_dot(hidden, second, sizes)


def _scaled(x, y, s, t):
    """Blocks of 4 on the left, and of 2 or 4 on the right."""
    scaled = partial(lax.scaled_dot, lhs_scale=s, preferred_element_type=jnp.float32)
    return scaled(x, y, rhs_scale=t), scaled(x, y)


def _chain(x, y, z):
    """Partial sums that pass through another product, and that must not."""
    total = jnp.einsum("bi,ij->bj", x, y)
    return total @ z, total @ total.T, (total * 2 + x[:, :1]) @ z


def _low_precision(x, y):
    return jnp.dot(x.astype(jnp.float8_e4m3fn), y.astype(jnp.float8_e4m3fn))


EXAMPLES = [
    *_with_grad("plain", jnp.dot, _normal(8, 4), _normal(4, 6)),
    *_with_grad(
        "batched",
        partial(_dot, (((2,), (1,)), ((0,), (0,)))),
        _normal(4, 2, 8),
        _normal(4, 8, 6),
    ),
    *_with_grad(
        "batch in the middle",
        partial(_dot, (((0, 3), (2, 0)), ((1,), (1,)))),
        _normal(2, 4, 3, 8),
        _normal(8, 4, 2, 5),
    ),
    Example(
        "two batch dims, crossed",
        partial(_dot, (((3,), (2,)), ((0, 1), (1, 0)))),
        (_normal(2, 4, 3, 8), _normal(4, 2, 8, 1)),
    ),
    *_with_grad("outer", partial(_dot, (((), ()), ((), ()))), _normal(8), _normal(4)),
    Example("inner", jnp.dot, (_normal(8), _normal(8))),
    Example("vectors", jnp.matmul, (_normal(8), _normal(4, 8, 2))),
    Example(
        "nothing contracted",
        partial(_dot, (((), ()), ((0,), (0,)))),
        (_normal(8, 2), _normal(8, 4)),
    ),
    *_with_grad(
        "bfloat16 into float32",
        partial(_dot, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32),
        _normal(8, 4).astype(jnp.bfloat16),
        _normal(4, 4).astype(jnp.bfloat16),
    ),
    Example(
        "mixed dtypes",
        partial(_dot, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32),
        (_normal(8, 4), _normal(4, 4).astype(jnp.bfloat16)),
    ),
    Example(
        "integers into wider ones",
        partial(_dot, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32),
        (_ints(8, 4), _ints(4, 4)),
    ),
    Example("integers that wrap around", jnp.dot, (_ints(8, 4) * 13, _ints(4, 4) * 17)),
    Example(
        "bools",
        partial(_dot, (((1,), (0,)), ((), ()))),
        (_ints(8, 4) > 3, _ints(4, 4) > 3),
    ),
    Example("complex", jnp.dot, (_normal(8, 4) + 1j, _normal(4, 4) * 1j)),
    Example("eight bits", _low_precision, (_normal(8, 4), _normal(4, 4))),
    Example(
        "einsum",
        partial(jnp.einsum, "btd,dhk,bhs->bthks"),
        (_normal(2, 4, 8), _normal(8, 2, 4), _normal(2, 2, 4)),
    ),
    Example("chain", _chain, (_normal(4, 8), _normal(8, 4), _normal(4, 2))),
    Example("ragged rows", _ragged_rows, (ROWS, EXPERTS, SIZES)),
    Example("ragged rows, some in no group", _ragged_rows, (ROWS, EXPERTS, SHORT)),
    Example(
        "ragged rows, sizes of 8 bits",
        _ragged_rows,
        (ROWS, EXPERTS, SIZES.astype(np.uint8)),
    ),
    Example(
        "ragged rows, batched",
        _ragged_batched_rows,
        (_normal(2, 8, 4), _normal(4, 2, 4, 6), np.stack([SIZES, SHORT])),
    ),
    Example(
        "ragged rows, batched alike",
        _ragged_batched_rows,
        (_normal(2, 8, 4), _normal(4, 2, 4, 6), SIZES),
    ),
    Example("ragged contracted", _ragged_contracted, (ROWS, OUT, SHORT)),
    Example(
        "ragged contracted, batched",
        _ragged_batched_contracted,
        (_normal(2, 8, 4), _normal(2, 8, 6), np.stack([SIZES, SHORT])),
    ),
    Example("ragged batch", _ragged_batch, (_normal(8, 2, 4), _normal(8, 4, 6), SIZES)),
    Example(
        "experts grad",
        lambda x, a, b, s: jax.grad(
            lambda x, a, b: jnp.sum(_experts(x, a, b, s) ** 2), (0, 1, 2)
        )(x, a, b),
        (ROWS, EXPERTS, _normal(4, 6, 4), SIZES),
    ),
    Example(
        "scaled",
        _scaled,
        (
            _normal(4, 16).astype(jnp.float8_e4m3fn),
            _normal(16, 8).astype(jnp.float8_e4m3fn),
            np.exp2(_ints(4, 4)).astype(jnp.float8_e8m0fnu),
            np.exp2(_ints(8, 8)).astype(jnp.float8_e8m0fnu),
        ),
    ),
    Example(
        "scaled by microblocks",
        jax.nn.scaled_matmul,
        (
            _normal(2, 4, 64).astype(jnp.float8_e4m3fn),
            _normal(2, 8, 64).astype(jnp.float8_e4m3fn),
            np.exp2(_ints(2, 4, 2)).astype(jnp.float8_e8m0fnu),
            np.exp2(_ints(2, 8, 2)).astype(jnp.float8_e8m0fnu),
        ),
        since=(0, 11),
    ),
]
