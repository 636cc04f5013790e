"""How devices hang together: levels of links, from the inside out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from meshwright.errors import MachineError


class Kind(Enum):
    """What joins the devices of a level."""

    TORUS = "torus"  # links to the neighbours along each dim
    SWITCH = "switch"  # every device reaches every other at its own link's speed


@dataclass(frozen=True, slots=True)
class Level:
    """One kind of link, and how many groups of the level below it joins.

    extents: largest size of each dim of a torus; one number for a switch.
    wraps_at: a torus dim closes to a ring where its size is a multiple of this; 0 for
        never.
    link_bytes_per_s: one way, of one link of a torus or of one device at a switch.
    latency_s: of one hop.
    pause_share: of its time each group that it joins stands still while others go on.
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
        """Groups that it joins at most."""
        return math.prod(self.extents)

    def shape(self, count: int) -> tuple[int, ...] | None:
        """The most compact grid of `count`, or None if there is none that fits.

        Extents ascend, as pods are described: 4x8, not 8x4.
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
    """One dim of the grid of devices that a machine of some size has.

    level: of which it is a part. is_ring: its ends are joined.
    """

    level: Level
    extent: int
    is_ring: bool
