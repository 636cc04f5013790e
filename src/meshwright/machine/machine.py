"""The machine: a number of equal devices on a grid, and levels of links between them.

A level is one kind of link, such as NVLink inside nodes, or the network between them.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice

from meshwright.errors import MachineError
from meshwright.machine.accelerator import Accelerator
from meshwright.machine.chip import Chip, Gpu


class Kind(Enum):
    """The topology of the links of one level, such as NVLink or the network."""

    TORUS = "torus"  # links join neighbours along each dim
    SWITCH = "switch"  # every device reaches every other at its own link's speed


@dataclass(frozen=True, slots=True)
class Level:
    """One kind of link, which joins devices, or groups of them, to larger groups.

    For instance, NVLink joins devices to nodes, and the network joins nodes.

    extents: largest number of groups along each dim of a torus; one number for a
        switch.
    wraps_at: a torus dim closes to a ring if its size is a multiple of this; 0 for
        never.
    link_bytes_per_s: bandwidth in one direction, of one link of a torus or of one
        device at a switch.
    latency_s: latency of one hop.
    pause_share: share of the time in which a joined group stalls while others run.
    group_links: number of links, such as network cards, that all devices of a joined
        group share to reach this level of a switch; 0 if each device has a link of its
        own.
    one_ring: 1 if the library runs a collective over this level and inner ones as one
        ring of all devices (NCCL's ring), 0 if it goes level by level.
    start_s: least time of a collective, besides the hops of its data.
    ramp_s: time that large arrays take besides, until their data moves at the full rate.
    switch_gain: factor by which an all-reduce over all devices of a switch is faster
        than a ring, because the switch itself adds (NCCL's NVLS).
    detour_bytes_per_s: bandwidth of the host for all devices of one torus together,
        between devices that no link joins; 0 if devices forward for each other.
    """

    name: str
    kind: Kind
    extents: tuple[int, ...]
    link_bytes_per_s: float
    latency_s: float
    wraps_at: int = 0
    pause_share: float = 0.0
    group_links: int = 0
    one_ring: int = 0
    start_s: float = 0.0
    ramp_s: float = 0.0
    switch_gain: float = 1.0
    detour_bytes_per_s: float = 0.0

    def __post_init__(self) -> None:
        for fault in self._faults():
            raise MachineError(f"level {self.name!r} {fault}")

    def _faults(self) -> Iterator[str]:
        """What is wrong with the level's numbers, each as the rest of a sentence."""
        rate, is_switch = self.link_bytes_per_s, self.kind is Kind.SWITCH
        if not self.extents or min(self.extents) < 1:
            yield f"has extents {self.extents}; wanted one size or more, each 1 or more"
        if rate <= 0:
            yield f"has link_bytes_per_s {rate:g}; wanted more than 0"
        if self.switch_gain < 1:
            yield f"has switch_gain {self.switch_gain:g}; wanted 1 or more"
        if is_switch and len(self.extents) != 1:
            yield f"is a switch; it has one extent, not {len(self.extents)}"
        if not is_switch and self.group_links:
            links = f"group_links {self.group_links}"
            yield f"is a torus with {links}; only devices at a switch share links"
        if self.detour_bytes_per_s and (is_switch or len(self.extents) != 1):
            yield "has detour_bytes_per_s, which only a torus of one dim may have"

    @property
    def largest(self) -> int:
        """Largest number of devices or inner groups that the level can join."""
        return math.prod(self.extents)

    def shape(self, count: int) -> tuple[int, ...] | None:
        """The most compact grid of `count` groups within the extents.

        `None` if no grid fits. Sizes ascend, as in names of TPU slices: 4x8, not 8x4.
        """
        grids = _grids(count, sorted(self.extents))
        return min(grids, key=lambda grid: (sum(grid), grid), default=None)


def _grids(count: int, limits: list[int]) -> list[tuple[int, ...]]:
    """All ascending tuples of ints with product `count`, each within its limit."""
    if len(limits) == 1:
        return [(count,)] if count <= limits[0] else []
    most = min(limits[0], int(count ** (1 / len(limits)) + 1e-9))
    return [
        (first, *rest)
        for first in range(1, most + 1)
        if count % first == 0
        for rest in _grids(count // first, limits[1:])
        if rest[0] >= first
    ]


@dataclass(frozen=True, slots=True)
class Dim:
    """One dim of a machine's grid of devices.

    level: the level whose links run along the dim.
    extent: number of groups along the dim.
    is_ring: whether links join the ends of the dim.
    num_inner: number of devices in each of the groups that the level joins.
    """

    level: Level
    extent: int
    is_ring: bool
    num_inner: int = 1


_COMPILERS = ("plain", "tpu", "gpu", "cpu", "pytorch", "tensorflow")


@dataclass(frozen=True, slots=True)
class Machine:
    """`num_devices` devices of one kind, and the grid in which links join them.

    levels: kinds of links, from the innermost to the outermost level.
    grid: dims of all levels in use; dims of inner levels come last.
    compiler: the back end of XLA that compiles for it: "tpu", "gpu" or "cpu"; or
        "plain", a compiler that keeps the program's order and overlaps nothing; or
        "pytorch" or "tensorflow", which run it op by op on a GPU.
    topology: the compiler's name of the chip; "" if it has none.
    chip_config: the compiler's name of the configuration of the chip's cores; "" for
        its default.
    gpu: numbers that only the GPU compiler needs; `None` if the description has none.
    accelerator: datapath and memories of a designed chip; `None` for the others.
    pue: power usage effectiveness of its data centre.
    sources: where each number comes from, by its path in the TOML description.
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
    accelerator: Accelerator | None = None
    pue: float = 1.1
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.compiler not in _COMPILERS:
            raise MachineError(
                f"machine {self.name!r}: compiler is {self.compiler!r}; wanted "
                f"{', '.join(_COMPILERS)}"
            )
        if self.pue < 1:
            raise MachineError(
                f"machine {self.name!r}: pue is {self.pue}; no data centre draws less "
                "than its chips"
            )
        if self.gpu is not None and self.chip.num_cores == 1:
            raise MachineError(
                f"machine {self.name!r} has [gpu], but chip.num_cores is missing: the "
                "number of streaming multiprocessors, which was gpu.num_cores before"
            )

    @property
    def num_chips(self) -> int:
        """Number of chips as they are sold; a chip has `devices_per_chip` devices."""
        return self.num_devices // self.devices_per_chip

    def __str__(self) -> str:
        shape = "x".join(str(dim.extent) for dim in self.grid)
        return f"{self.name}, {self.num_devices} devices ({shape})"


def make_grid(
    name: str, levels: tuple[Level, ...], num_devices: int
) -> tuple[Dim, ...]:
    """The dims of the grid of `num_devices` devices; dims of inner levels come last.

    Inner levels are filled first: an outer level joins full groups of the inner level.
    Raises `MachineError` with near sizes if no grid has this number of devices.
    """
    most = math.prod(level.largest for level in levels)
    if num_devices > most:
        raise MachineError(f"{name} has at most {most} devices; got {num_devices}")
    shapes = _shapes(levels, num_devices)
    if shapes is None:
        raise MachineError(_no_grid(name, levels, num_devices))
    return grid_of(tuple(zip(levels, shapes, strict=True)))


def grid_of(
    shapes: tuple[tuple[Level, tuple[int, ...]], ...],
) -> tuple[Dim, ...]:
    """The grid's dims, given each level with its shape, from innermost to outermost.

    In the result, dims of inner levels come last.
    """
    dims: tuple[Dim, ...] = ()
    num_inner = 1
    for level, shape in shapes:
        inner = num_inner
        dims = tuple(Dim(level, n, is_ring(level, n), inner) for n in shape) + dims
        num_inner *= math.prod(shape)
    return dims


def _shapes(
    levels: tuple[Level, ...], num_devices: int
) -> list[tuple[int, ...]] | None:
    """The grid shape of each level.

    `None` if the levels have no grid of that many devices.
    """
    shapes: list[tuple[int, ...]] = []
    left = num_devices
    for level in levels:
        size = min(left, level.largest)
        shape = level.shape(size) if left % size == 0 else None
        if shape is None:
            return None
        shapes.append(shape)
        left //= size
    return shapes if left == 1 else None


def is_ring(level: Level, extent: int) -> bool:
    """Whether links close a dim of the given extent to a ring.

    Two devices share one link and form no ring.
    """
    wraps = level.wraps_at > 0 and extent % level.wraps_at == 0
    return level.kind is Kind.TORUS and wraps and extent > 2


_FAR = 5000
"""Largest difference, in devices, of the sizes that an error suggests."""


def _no_grid(name: str, levels: tuple[Level, ...], num_devices: int) -> str:
    """The error message for a number of devices that has no grid, with near sizes."""
    around = (
        n for gap in range(1, _FAR) for n in (num_devices - gap, num_devices + gap)
    )
    near = islice((n for n in around if n > 0 and _shapes(levels, n) is not None), 4)
    shown = ", ".join(map(str, sorted(near)))
    return f"no {name} has {num_devices} devices; near sizes: {shown or 'none'}"
