"""The interconnect of devices: levels of links, from the innermost to the outermost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from meshwright.errors import MachineError


class Kind(Enum):
    """The topology of the links of one level."""

    TORUS = "torus"  # links join neighbours along each dim
    SWITCH = "switch"  # every device reaches every other at its own link's speed


@dataclass(frozen=True, slots=True)
class Level:
    """One kind of link, and the number of groups of the next inner level that it joins.

    extents: largest size of each dim of a torus; one number for a switch.
    wraps_at: a torus dim closes to a ring if its size is a multiple of this; 0 for never.
    link_bytes_per_s: bandwidth in one direction, of one link of a torus or of one device
        at a switch.
    latency_s: latency of one hop.
    pause_share: share of the time in which a joined group stalls while others run.
    """

    name: str
    kind: Kind
    extents: tuple[int, ...]
    link_bytes_per_s: float
    latency_s: float
    wraps_at: int = 0
    pause_share: float = 0.0

    def __post_init__(self) -> None:
        if not self.extents or min(self.extents) < 1:
            raise MachineError(f"level {self.name!r} has extents {self.extents}")
        if self.link_bytes_per_s <= 0:
            raise MachineError(
                f"level {self.name!r} has link_bytes_per_s {self.link_bytes_per_s:g}; "
                "wanted more than 0"
            )
        if self.kind is Kind.SWITCH and len(self.extents) != 1:
            raise MachineError(
                f"level {self.name!r} is a switch; it has one extent, not "
                f"{len(self.extents)}"
            )

    @property
    def largest(self) -> int:
        """The largest number of groups that the level joins."""
        return math.prod(self.extents)

    def shape(self, count: int) -> tuple[int, ...] | None:
        """The most compact grid of `count` groups, or None if no grid fits the extents.

        The extents ascend, as in the names of TPU slices: 4x8, not 8x4.
        """
        limits = sorted(self.extents)
        grids = [grid for grid in _grids(count, len(limits)) if _fits(grid, limits)]
        return min(grids, key=lambda grid: (sum(grid), grid), default=None)


def _grids(count: int, rank: int) -> list[tuple[int, ...]]:
    """All ascending `rank`-tuples of ints with product `count`."""
    if rank == 1:
        return [(count,)]
    found = []
    for first in range(1, int(count ** (1 / rank) + 1e-9) + 1):
        if count % first == 0:
            found += [
                (first, *rest)
                for rest in _grids(count // first, rank - 1)
                if rest[0] >= first
            ]
    return found


def _fits(grid: tuple[int, ...], limits: list[int]) -> bool:
    return all(n <= limit for n, limit in zip(grid, limits, strict=True))


@dataclass(frozen=True, slots=True)
class Dim:
    """One dim of a machine's grid of devices.

    level: the level whose links run along the dim. is_ring: whether its ends are joined.
    """

    level: Level
    extent: int
    is_ring: bool
