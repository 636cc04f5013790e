"""Quantities as text, with three digits and a unit prefix, such as `4.48 ms`.

Rates are in decimal units, such as GB/s, as vendors give them; sizes of memory are binary
(`machine/memory_size.py`).
"""

import math

from meshwright.machine.memory_size import BINARY_UNITS

_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SMALL = ((1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p"))


def show_si(value: float, unit: str) -> str:
    """A quantity as text with three digits, a decimal prefix and the unit: `4.48 ms`.

    A quantity too small for all prefixes, such as a rounding error, is 0.

    >>> show_si(31591432196, "B/s"), show_si(0.0009996, "s"), show_si(99.96, "g")
    ('31.6 GB/s', '1.00 ms', '100 g')
    >>> show_si(3.5e-18, "s")
    '0 s'
    """
    for factor, prefix in (*_PREFIXES, (1.0, ""), *_SMALL):
        if abs(value) >= 0.9995 * factor:
            digits = f"{value / factor:#.3g}".rstrip(".")
            return f"{digits} {prefix}{unit}"
    return f"0 {unit}"


def show_seconds(value: float) -> str:
    """A time in seconds as text: `4.48 ms`."""
    return show_si(value, "s")


def show_count(value: float) -> str:
    """A count as text, such as `5.54 G`; below a thousand, a whole number."""
    return f"{value:.0f}" if abs(value) < 999.5 else show_si(value, "")


def show_share(value: float) -> str:
    """A share between 0 and 1 as a percentage: `42.3 %`."""
    return f"{100 * value:.1f} %"


def show_dollars(value: float) -> str:
    """A price in dollars as text, such as `$0.00309`; `$0` for less than 1e-12."""
    if value < 1e-12:
        return "$0"
    return f"${value:,.2f}" if value >= 100 else f"${value:#.3g}"


def nice_ticks(end: float, wanted: int) -> list[float]:
    """Round numbers from 0 to `end` for the ticks of a plot, about `wanted` of them.

    >>> nice_ticks(0.33, 7)
    [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]
    """
    if end <= 0:
        return [0.0]
    size = 10 ** math.floor(math.log10(end / wanted))
    step = next(m * size for m in (1, 2, 5, 10) if m * size >= 0.999 * end / wanted)
    count = int(end / step * (1 + 1e-9))
    return [float(f"{i * step:.12g}") for i in range(count + 1)]


def nice_byte_ticks(end: float, wanted: int) -> list[float]:
    """Round sizes from 0 to `end` bytes for the ticks of a plot.

    They are round in the binary unit of `end`, such as GiB.

    >>> from meshwright.machine.memory_size import show_bytes
    >>> [show_bytes(at) for at in nice_byte_ticks(16 * 2**30, 4)]
    ['0 B', '5.00 GiB', '10.0 GiB', '15.0 GiB']
    """
    unit = next((size for size, _ in BINARY_UNITS if end >= size), 1)
    return [at * unit for at in nice_ticks(end / unit, wanted)]


def or_dash(value: float | None, form: str) -> str:
    """A number formatted by the format spec `form`; "-" for `None`."""
    return "-" if value is None else format(value, form)
