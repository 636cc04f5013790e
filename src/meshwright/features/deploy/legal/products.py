"""Products in the forms that targets have."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from meshwright.program.ir import Op

Replacement = Callable[..., Any] | None


def of_nothing(op: Op) -> Replacement:
    """A product over a dim of size 0, which is 0."""
    numbers: Any = op.params["dimension_numbers"]
    (contracted, _), _ = numbers
    sizes = [op.operands[0].shape[d] for d in contracted]
    if 0 not in sizes and 0 not in op.results[0].shape:
        return None
    return lambda *_: jnp.zeros(op.results[0].shape, op.results[0].dtype)


def of_matrices(op: Op) -> Replacement:
    """A product of an array whose last free dim is 1 as one of two matrices.

    `litert-converter` 0.5 makes results of a wrong rank of some of them, and of a product
    of matrices that is reshaped, unless a barrier is between.
    """
    numbers: Any = op.params["dimension_numbers"]
    contracted, (batch, _) = numbers
    free = [
        [n for d, n in enumerate(a.shape) if d not in inner]
        for a, inner in zip(op.operands, contracted, strict=True)
    ]
    if batch or not any(len(sizes) > 2 and sizes[-1] == 1 for sizes in free):
        return None

    def matrix(x: Any, inner: Sequence[int], *, is_left: bool) -> Any:
        outer = [d for d in range(x.ndim) if d not in inner]
        order = (*outer, *inner) if is_left else (*inner, *outer)
        rows = math.prod(x.shape[d] for d in (outer if is_left else inner))
        return x.transpose(order).reshape(rows, -1)

    def product(x: Any, y: Any) -> Any:
        left = matrix(x, contracted[0], is_left=True)
        right = matrix(y, contracted[1], is_left=False)
        kind = op.params["preferred_element_type"]
        made = lax.dot(left, right, preferred_element_type=kind)
        return lax.optimization_barrier(made).reshape(op.results[0].shape)

    return product


def of_batches(op: Op) -> Replacement:
    """A product with batch dims and dims of size 1 as one with a single batch dim.

    IREE 3.13 compiles no attention of one example, [1, S, H, 1, D] by [1, T, H, D].
    """
    numbers: Any = op.params["dimension_numbers"]
    contracted, batch = numbers
    if not batch[0] or not any(1 in a.shape for a in op.operands):
        return None

    def stacked(x: Any, side: int, *, is_left: bool) -> Any:
        outer, inner = batch[side], contracted[side]
        free = [d for d in range(x.ndim) if d not in (*outer, *inner)]
        parts = (outer, free, inner) if is_left else (outer, inner, free)
        sizes = [math.prod(x.shape[d] for d in dims) for dims in parts]
        return x.transpose([d for dims in parts for d in dims]).reshape(sizes)

    def product(x: Any, y: Any) -> Any:
        kind = op.params["preferred_element_type"]
        made = lax.dot_general(
            stacked(x, 0, is_left=True),
            stacked(y, 1, is_left=False),
            (((2,), (1,)), ((0,), (0,))),
            preferred_element_type=kind,
        )
        return made.reshape(op.results[0].shape)

    return product
