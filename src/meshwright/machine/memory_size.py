"""Sizes of memory as text: parsed as users write them, shown in KiB, MiB, GiB."""

import math
import re

from meshwright.errors import PlanError

_UNITS = {
    "": 1, "B": 1,
    "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip

BINARY_UNITS = (
    (2**50, "PiB"),
    (2**40, "TiB"),
    (2**30, "GiB"),
    (2**20, "MiB"),
    (2**10, "KiB"),
)
"""Bytes and name of each unit in which sizes are shown, largest unit first."""

_SIZE = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*([a-z]*)\s*", re.I)

_LEAST_BYTES = 1000
"""Fewest bytes accepted as a device's memory: less was meant as gigabytes."""


def memory_bytes(size: float | str) -> float:
    """Bytes of a device's memory, from a number of bytes or a text with a unit.

    Raises `PlanError` for anything else, and for a number that must have been meant in
    another unit, such as 80.

    >>> memory_bytes("80GiB"), memory_bytes("16 gb"), memory_bytes(16e9)
    (85899345920.0, 16000000000.0, 16000000000.0)
    """
    num_bytes = size_bytes(size, "memory")
    if num_bytes < _LEAST_BYTES:
        number, _ = _read(size)
        raise PlanError(
            f"memory is {num_bytes:g} bytes of a device; did you mean '{number:g}GiB'?"
        )
    return num_bytes


def size_bytes(size: float | str, what: str) -> float:
    """Bytes, from a number of bytes or a text with a unit.

    `what` names it in errors.
    """
    number, unit = _read(size)
    if number is None or unit is None or not 0 < number < math.inf:
        raise PlanError(
            f"{what} is {size!r}; wanted a size such as '80GiB', or a number of bytes, "
            f"above 0; the units are {', '.join(u for u in _UNITS if u)}"
        )
    return number * _UNITS[unit]


def show_bytes(num_bytes: float) -> str:
    """A size with three digits, such as `3.16 TiB`; 1,000 or more use the next unit.

    >>> show_bytes(2**34), show_bytes(1000 * 2**20), show_bytes(999)
    ('16.0 GiB', '0.977 GiB', '999 B')
    """
    for size, unit in BINARY_UNITS:
        if abs(num_bytes) >= size * 999.5 / 1024:
            return f"{f'{num_bytes / size:#.3g}'.rstrip('.')} {unit}"
    return f"{num_bytes:.0f} B"


def _read(size: float | str) -> tuple[float | None, str | None]:
    """(number, unit as `_UNITS` spells it) of a size.

    `None` for what cannot be parsed.
    """
    if isinstance(size, bool):
        return None, None
    if isinstance(size, int | float):
        return float(size), ""
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if found is None:
        return None, None
    spelled = {unit.lower(): unit for unit in _UNITS}
    return float(found[1]), spelled.get(found[2].lower())
