"""Approximate multipliers by construction, with power, area and delay by one rule.

Cells of an array multiplier: the partial products a_i b_j. In a signed one (Baugh and
Wooley, 1973) bit 7 of each factor has weight -128.

Rule: transistors of static CMOS gates, AND 6, full adder 28, half adder 14, two-way
multiplexer 6 (transmission gates), leading-one detector 14 a bit. Power and area are their
count, at equal activity and size, as a share of the exact array's. Delay is the longest
path in adders and multiplexers, as a share of the exact array's.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.approximate.multiplier import (
    Multiplier,
    MultiplierFigures,
    exact_products,
    values_of,
)

_AND, _FULL_ADDER, _HALF_ADDER, _MULTIPLEXER, _ONE_DETECTOR = 6, 28, 14, 6, 14
"""Transistors."""

_BITS = 8
_PLACES = np.add.outer(np.arange(_BITS), np.arange(_BITS))
"""The power of two [8, 8] of each cell of an array multiplier."""

EXACT_TRANSISTORS = 64 * _AND + 48 * _FULL_ADDER + 8 * _HALF_ADDER
"""Transistors of the exact 8 x 8 array: 64 cells, 48 full and 8 half adders."""


def exact(signed: bool = True) -> Multiplier:
    """The exact multiplier."""
    return Multiplier("exact", exact_products(signed).astype(np.int32), signed)


def truncated(columns: int, signed: bool = True) -> Multiplier:
    """The array multiplier without its lowest columns, and a constant in their place.

    The constant is the mean of what is left out, rounded to the lowest kept column
    (Schulte and Swartzlander, 1993).
    """
    _check("columns", columns, 7)
    kept = columns <= _PLACES
    lost = exact_products(signed) - _products_of_cells(kept, signed)
    unit = 1 << columns
    constant = int(np.floor(lost.mean() / unit + 0.5)) * unit
    products = _products_of_cells(kept, signed) + constant
    limits = (-(2**15), 2**15 - 1) if signed else (0, 2**16 - 1)
    return Multiplier(
        f"truncated-{columns}",
        np.clip(products, *limits).astype(np.int32),
        signed,
        _array_figures(kept),
    )


def broken_array(columns: int, rows: int = 0, signed: bool = True) -> Multiplier:
    """The array multiplier without its lowest columns and the second factor's low bits.

    These are the vertical and the horizontal break level of Mahdiani et al. (2010).
    """
    _check("columns", columns, 14)
    _check("rows", rows, 7)
    kept = (columns <= _PLACES) & (np.arange(_BITS)[None, :] >= rows)
    products = _products_of_cells(kept, signed)
    limits = (-(2**15), 2**15 - 1) if signed else (0, 2**16 - 1)
    return Multiplier(
        f"broken-{columns}-{rows}",
        np.clip(products, *limits).astype(np.int32),
        signed,
        _array_figures(kept),
    )


def mitchell(signed: bool = True) -> Multiplier:
    """The multiplier that adds logarithms, of which it interpolates (Mitchell, 1962).

    A signed one multiplies magnitudes.
    """
    values = values_of(signed)
    sizes = _mitchell_products(np.abs(values))
    signs = np.sign(values)[:, None] * np.sign(values)
    detectors = 2 * _BITS * _ONE_DETECTOR
    into_logarithms = 2 * 3 * _BITS * _MULTIPLEXER
    adder = 10 * _FULL_ADDER
    from_logarithm = 4 * 2 * _BITS * _MULTIPLEXER
    signing = 2 * _BITS * _HALF_ADDER * signed
    total = detectors + into_logarithms + adder + from_logarithm + signing
    share = total / EXACT_TRANSISTORS
    steps = 3 + 3 + 10 + 4  # detector, shift, sum, shift back
    products = (signs * sizes).astype(np.int32)
    figures = MultiplierFigures(share, share, steps / (2 * _BITS + _BITS - 2))
    return Multiplier("mitchell", products, signed, figures)


LIBRARY: dict[str, Callable[[bool], Multiplier]] = {
    "exact": exact,
    **{f"truncated-{n}": lambda s, n=n: truncated(n, s) for n in (3, 4, 5, 6, 7)},
    **{
        f"broken-{n}-{r}": lambda s, n=n, r=r: broken_array(n, r, s)
        for n, r in ((4, 0), (5, 1), (6, 2), (7, 3))
    },
    "mitchell": mitchell,
}
"""Multipliers by name; each takes whether its factors are signed."""


def _check(name: str, value: int, most: int) -> None:
    if not (isinstance(value, Integral) and 0 <= value <= most):
        raise AcceleratorError(
            f"{name} is {value!r}; wanted 0 to {most}, a whole number"
        )


def _products_of_cells(kept: NDArray[np.bool_], signed: bool) -> NDArray[np.int64]:
    """Sums [256, 256] of the cells that are kept."""
    codes = np.arange(256)
    bits = (codes[:, None] >> np.arange(_BITS)) & 1
    weights = 1 << np.arange(_BITS)
    if signed:
        weights[-1] = -weights[-1]
    terms = bits * weights
    return terms @ kept.astype(np.int64) @ terms.T


def _array_figures(kept: NDArray[np.bool_]) -> MultiplierFigures:
    """Figures of an array multiplier with these cells.

    A full adder takes one bit of a column; its carries are counted by the column above. So
    cells beyond the first of each column need one each.
    """
    cells = int(kept.sum())
    columns = len(np.unique(_PLACES[kept]))
    rows = int(kept.any(axis=0).sum())
    adders = max(0, cells - columns) - 1
    halves = max(0, rows - 1) + 1
    total = cells * _AND + max(0, adders) * _FULL_ADDER + halves * _HALF_ADDER
    share = total / EXACT_TRANSISTORS
    path = (rows - 1) + (columns - 1)
    return MultiplierFigures(share, share, max(path, 1) / (2 * _BITS + _BITS - 3))


def _mitchell_products(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Products [256, 256] of magnitudes by sums of interpolated logarithms.

    With a = 2^k (1 + x) the logarithm is k + x. All results are whole numbers.
    """
    logs = np.floor(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    rests = sizes - (1 << logs)
    scale = 1 << np.add.outer(logs, logs)
    cross = rests[:, None] * (1 << logs)[None, :] + (1 << logs)[:, None] * rests
    products = np.where(cross < scale, scale + cross, 2 * cross)
    return np.where((sizes[:, None] == 0) | (sizes == 0), 0, products)
