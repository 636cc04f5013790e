"""The machine: a number of equal devices on a grid of links."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from meshwright.errors import MachineError
from meshwright.machine.chip import Chip
from meshwright.machine.fabric import Dim, Kind, Level
from meshwright.machine.gpu import Gpu


@dataclass(frozen=True, slots=True)
class Machine:
    """`num_devices` devices of one kind, and the grid in which links join them.

    levels: links, from the innermost to the outermost level.
    grid: dims of all levels in use; dims of inner levels come last.
    compiler: the back end of XLA that compiles for it: "tpu", "gpu" or "cpu"; or
        "plain", a compiler that keeps the program's order and overlaps nothing.
    topology: the compiler's name of the chip; "" if it has none.
    chip_config: the compiler's name of the configuration of the chip's cores; "" for its
        default.
    gpu: numbers that only the GPU compiler needs; None if the description has none.
    pue: power usage effectiveness of its data centre.
    sources: the source of each number, by its path in the description.
    """

    name: str
    title: str
    chip: Chip
    levels: tuple[Level, ...]
    num_devices: int
    grid: tuple[Dim, ...] = ()
    compiler: str = "cpu"
    topology: str = ""
    chip_config: str = ""
    devices_per_chip: int = 1
    gpu: Gpu | None = None
    pue: float = 1.1
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def num_chips(self) -> int:
        """The number of chips as they are sold; a chip has `devices_per_chip` devices."""
        return self.num_devices // self.devices_per_chip

    def __str__(self) -> str:
        shape = "x".join(str(dim.extent) for dim in self.grid)
        return f"{self.name}, {self.num_devices} devices ({shape})"


def make_grid(
    name: str, levels: tuple[Level, ...], num_devices: int
) -> tuple[Dim, ...]:
    """The dims of the grid of `num_devices` devices; dims of inner levels come last.

    Inner levels are filled first; an outer level joins full groups of the inner level.
    Raises `MachineError` with near sizes if no grid has this number of devices.
    """
    most = math.prod(level.largest for level in levels)
    if num_devices > most:
        raise MachineError(f"{name} has at most {most} devices; got {num_devices}")
    dims: list[Dim] = []
    left = num_devices
    for level in levels:
        size = min(left, level.largest)
        shape = level.shape(size) if left % size == 0 else None
        if shape is None:
            raise MachineError(_no_grid(name, levels, num_devices))
        dims[:0] = [Dim(level, n, _is_ring(level, n)) for n in shape]
        left //= size
    return tuple(dims)


def _is_ring(level: Level, extent: int) -> bool:
    """True if links close the dim to a ring; two devices share one link and form none."""
    wraps = level.wraps_at > 0 and extent % level.wraps_at == 0
    return level.kind is Kind.TORUS and wraps and extent > 2


_FAR = 5000
"""Largest difference in devices at which an error looks for sizes that exist."""


def _no_grid(name: str, levels: tuple[Level, ...], num_devices: int) -> str:
    """The error message for a number of devices without a grid, with near sizes."""
    around = (
        n for gap in range(1, _FAR) for n in (num_devices - gap, num_devices + gap)
    )
    near = islice((n for n in around if n > 0 and _has_grid(levels, n)), 4)
    shown = ", ".join(map(str, sorted(near)))
    return f"no {name} has {num_devices} devices; near sizes: {shown or 'none'}"


def _has_grid(levels: tuple[Level, ...], count: int) -> bool:
    for level in levels:
        size = min(count, level.largest)
        if count % size or level.shape(size) is None:
            return False
        count //= size
    return count == 1
