"""Multipliers of two 8-bit numbers as tables of all products, and their errors.

Codes: the byte of a number, which is its low 8 bits. So -1 has code 255.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import AcceleratorError

Table = NDArray[np.int32]
"""Products [256, 256] by the codes of both factors."""

_CODES = np.arange(256)


def values_of(signed: bool) -> NDArray[np.int64]:
    """The numbers [256] that the codes stand for."""
    return np.where(signed & (_CODES > 127), _CODES - 256, _CODES)


def exact_products(signed: bool) -> NDArray[np.int64]:
    """The right products [256, 256] by codes."""
    values = values_of(signed)
    return values[:, None] * values


@dataclass(frozen=True, slots=True)
class MultiplierFigures:
    """Power, area and delay of a multiplier, as shares of the exact one's."""

    power: float = 1.0
    area: float = 1.0
    delay: float = 1.0

    def __post_init__(self) -> None:
        for name in ("power", "area", "delay"):
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not 0 < value < float("inf"):
                raise AcceleratorError(f"{name} is {value!r}; wanted a number above 0")

    def relative_to(self, other: MultiplierFigures) -> MultiplierFigures:
        """These figures as shares of another multiplier's, in the same units."""
        return MultiplierFigures(
            self.power / other.power, self.area / other.area, self.delay / other.delay
        )


@dataclass(frozen=True, eq=False)
class Multiplier:
    """A multiplier of two 8-bit numbers; error statistics are over all 65,536 pairs.

    products: by codes, the first factor's first. The first factor is an activation, the
        second a weight. signed: whether the factors are -128 to 127, not 0 to 255.
    """

    name: str
    products: Table
    signed: bool
    figures: MultiplierFigures = MultiplierFigures()

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        name: str = "table",
        signed: bool | None = None,
        figures: MultiplierFigures | None = None,
    ) -> Multiplier:
        """The multiplier of a table [256, 256] of whole numbers.

        signed: by default, whether the table has a negative number. Rows and columns of a
            signed table are in the order of codes (0 to 127, then -128 to -1) or of values
            (-128 to 127), whichever is closer to the right products.
        """
        products = _whole(table, name)
        if signed is None:
            signed = bool(products.min() < 0)
        least, most = (-(2**15), 2**15 - 1) if signed else (0, 2**16 - 1)
        if products.min() < least or products.max() > most:
            worst = products.min() if products.min() < least else products.max()
            kind = "signed" if signed else "unsigned"
            raise AcceleratorError(
                f"{name}: {worst} is no product of {kind} 8-bit numbers in 16 bits; "
                f"wanted {least} to {most}"
            )
        if signed:
            rolled = np.roll(products, (128, 128), (0, 1))
            exact = exact_products(True)
            if np.abs(rolled - exact).sum() < np.abs(products - exact).sum():
                products = rolled
        return cls(
            name, products.astype(np.int32), signed, figures or MultiplierFigures()
        )

    @property
    def table(self) -> Table:
        """Products [256, 256] in the order of values, from -128 or from 0."""
        return (
            np.roll(self.products, (128, 128), (0, 1)) if self.signed else self.products
        )

    @cached_property
    def _errors(self) -> NDArray[np.int64]:
        """Product minus right product, [256, 256]."""
        return self.products - exact_products(self.signed)

    @cached_property
    def _relative(self) -> NDArray[np.float64]:
        """Error as a share of the right product; of 1 where that is 0."""
        scale = np.maximum(np.abs(exact_products(self.signed)), 1)
        return np.abs(self._errors) / scale

    @property
    def mae(self) -> float:
        """Mean absolute error."""
        return int(np.abs(self._errors).sum()) / self._errors.size

    @property
    def wce(self) -> int:
        """Worst-case error: the largest absolute error."""
        return int(np.abs(self._errors).max())

    @property
    def error_probability(self) -> float:
        """Share of pairs whose product is wrong."""
        return int(np.count_nonzero(self._errors)) / self._errors.size

    @property
    def mre(self) -> float:
        """Mean relative error; relative to 1 where the right product is 0."""
        return float(self._relative.mean())

    @property
    def wcre(self) -> float:
        """Worst-case relative error."""
        return float(self._relative.max())

    @property
    def mse(self) -> float:
        """Mean squared error."""
        return int((self._errors**2).sum()) / self._errors.size

    @property
    def bias(self) -> float:
        """Mean of product minus right product."""
        return int(self._errors.sum()) / self._errors.size

    def with_figures(self, figures: MultiplierFigures) -> Multiplier:
        """This multiplier with other power, area and delay."""
        return replace(self, figures=figures)


def _whole(table: Any, name: str) -> NDArray[np.int64]:
    """The table as integers, after a check of its shape and numbers."""
    found = np.asarray(table)
    if found.shape != (256, 256):
        raise AcceleratorError(
            f"{name}: the table has shape {found.shape}; wanted (256, 256), the product "
            "of each pair of 8-bit numbers"
        )
    if found.dtype.kind not in "iuf":
        raise AcceleratorError(
            f"{name}: numbers of type {found.dtype}; wanted integers"
        )
    if found.dtype.kind == "f" and not (
        np.isfinite(found).all() and (found % 1 == 0).all()
    ):
        raise AcceleratorError(f"{name}: the table has numbers that are not whole")
    if found.size and max(abs(float(found.min())), abs(float(found.max()))) > 2**31:
        worst = max(found.min(), found.max(), key=abs)
        raise AcceleratorError(
            f"{name}: {worst} is out of range; wanted 16-bit products"
        )
    return found.astype(np.int64)
