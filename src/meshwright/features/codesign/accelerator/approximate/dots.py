"""Sums of table products, bit-exact.

Letters in shapes: B products of a batch, M rows of activations, N columns of weights, K
summed over.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.approximate.multiplier import (
    Multiplier,
    Table,
)
from meshwright.search.compiled import compiled

Codes = NDArray[np.uint8]

_BLOCK = 1024
"""Rows whose sums are made at once: 8 KiB of sums, and 1 KiB of products."""


def approximate_dot(x: Any, w: Any, multiplier: Multiplier) -> NDArray[np.int64]:
    """The sums of products x [..., K] by w [K, ...], each product from the table.

    Both are of int8 for a signed multiplier, and of uint8 for another.
    """
    if not isinstance(multiplier, Multiplier):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise AcceleratorError(f"{multiplier!r:.60} is no acc.Multiplier")
    codes = [_codes(each, multiplier) for each in (x, w)]
    left, right = codes
    if left.ndim == 0 or right.ndim == 0 or left.shape[-1] != right.shape[0]:
        raise AcceleratorError(
            f"shapes {left.shape} and {right.shape}; wanted x [..., K] and w [K, ...]"
        )
    summed = right.shape[0]
    rows = left.reshape(math.prod(left.shape[:-1]), summed)
    columns = right.reshape(summed, math.prod(right.shape[1:]))
    sums = batched_sums(rows.T[None], columns[None], multiplier.products)
    return sums[0].T.reshape(left.shape[:-1] + right.shape[1:])


def batched_sums(x: Codes, w: Codes, products: Table) -> NDArray[np.int64]:
    """Sums [B, N, M] of products of activations x [B, K, M] and weights w [B, K, N]."""
    sums = np.zeros((len(x), w.shape[2], x.shape[2]), np.int64)
    by_weight = np.ascontiguousarray(products.T)
    _add(np.ascontiguousarray(x), np.ascontiguousarray(w), by_weight, sums)
    return sums


@compiled
def _add(x: Codes, w: Codes, by_weight: Table, sums: NDArray[np.int64]) -> None:
    """Add the products; `by_weight` is the table with the weight's code first."""
    for batch in range(x.shape[0]):
        for begin in range(0, x.shape[2], _BLOCK):
            end = min(begin + _BLOCK, x.shape[2])
            for n in range(w.shape[2]):
                total = sums[batch, n, begin:end]
                for k in range(x.shape[1]):
                    row = by_weight[w[batch, k, n]]
                    codes = x[batch, k, begin:end]
                    for m in range(end - begin):
                        total[m] += row[codes[m]]


def _codes(numbers: Any, multiplier: Multiplier) -> Codes:
    found = np.asarray(numbers)
    wanted = np.int8 if multiplier.signed else np.uint8
    if found.dtype != wanted:
        kind = "signed" if multiplier.signed else "unsigned"
        raise AcceleratorError(
            f"numbers of type {found.dtype} for the {kind} multiplier "
            f"{multiplier.name}; wanted {np.dtype(wanted)}"
        )
    return found.view(np.uint8)
