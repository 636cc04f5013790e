"""Placements: the assignment of mesh axes to the dims of a machine's grid.

A placement is a matrix of ints (P2: Xie et al., "Synthesizing Optimal Parallelism
Placement and Reduction Strategies", MLSys 2022). Each row is a mesh axis, and its product
is the axis's size. Each column is a grid dim, and its product is the dim's extent. Inside
a dim, an earlier axis of the mesh is major.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from meshwright.errors import MachineError
from meshwright.machine.machine import Dim, Machine
from meshwright.machine.mesh import Mesh

type Matrix = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """The part of a grid dim along which one mesh axis runs.

    extent: number of devices of the axis along the dim.
    stride: distance along the dim between consecutive devices of the axis. It is also
        the number of groups that share each link.
    """

    dim: Dim
    extent: int
    stride: int

    @property
    def is_ring(self) -> bool:
        """True if the ends are joined: the dim is a ring, and the segment spans it."""
        return self.dim.is_ring and self.extent * self.stride == self.dim.extent


@dataclass(frozen=True, slots=True)
class Placement:
    """The segments of each mesh axis on a machine; segments of inner levels come last."""

    machine: Machine
    segments: tuple[tuple[str, tuple[Segment, ...]], ...]

    def of(self, axes: tuple[str, ...]) -> tuple[Segment, ...]:
        """The segments of these axes, in the order of the axes."""
        chosen = dict(self.segments)
        return tuple(segment for axis in axes for segment in chosen[axis])


def require_size(mesh: Mesh, machine: Machine) -> None:
    """Raise `MachineError` if mesh and machine have different numbers of devices."""
    if mesh.num_devices != machine.num_devices:
        raise MachineError(
            f"mesh {mesh} has {mesh.num_devices} devices, machine {machine.name} "
            f"{machine.num_devices}"
        )


def place_mesh(mesh: Mesh, machine: Machine) -> Placement:
    """The placement whose links are shared least and whose last axes are fastest.

    First, the largest number of groups that share one link is as small as possible.
    Among such placements the last axis gets the most bandwidth, then the axis before it,
    and so on, because schedules put the heaviest communication on the last axis.
    Raises `MachineError` if mesh and machine have different numbers of devices.
    """
    require_size(mesh, machine)
    sizes = tuple(size for _, size in mesh.sizes)
    extents = tuple(dim.extent for dim in machine.grid)
    best = max(matrices(sizes, extents), key=lambda m: _preference(m, machine.grid))
    segments = zip(mesh.axes, _segments(best, machine.grid), strict=True)
    return Placement(machine, tuple(segments))


def _segments(matrix: Matrix, grid: tuple[Dim, ...]) -> list[tuple[Segment, ...]]:
    """The segments of each axis, along the dims in which it has several devices."""
    columns = tuple(zip(*matrix, strict=True))
    return [
        tuple(
            Segment(dim, extent, math.prod(column[index + 1 :]))
            for extent, column, dim in zip(row, columns, grid, strict=True)
            if extent > 1
        )
        for index, row in enumerate(matrix)
    ]


@cache
def matrices(rows: tuple[int, ...], columns: tuple[int, ...]) -> tuple[Matrix, ...]:
    """All matrices of positive ints with the given products of rows and of columns."""
    if not rows:
        return ((),) if math.prod(columns) == 1 else ()
    found: list[Matrix] = []
    for row in factorings(rows[0], columns):
        left = tuple(c // r for c, r in zip(columns, row, strict=True))
        found += [(row, *rest) for rest in matrices(rows[1:], left)]
    return tuple(found)


def factorings(size: int, limits: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """All tuples of ints with product `size`, each of which divides its limit."""
    if not limits:
        if size == 1:
            yield ()
        return
    for first in range(1, math.gcd(size, limits[0]) + 1):
        if size % first == 0 and limits[0] % first == 0:
            for rest in factorings(size // first, limits[1:]):
                yield (first, *rest)


def _preference(matrix: Matrix, grid: tuple[Dim, ...]) -> tuple[object, ...]:
    """The key of `place_mesh`: few groups on one link, then bandwidth of late axes."""
    placed = _segments(matrix, grid)
    strides = [segment.stride for segments in placed for segment in segments]
    speeds: list[float] = [-max(strides, default=1)]
    for segments in reversed(placed):
        speeds.append(min((_speed(s) for s in segments), default=math.inf))
        speeds.append(sum(_speed(s) for s in segments))
    return (*speeds, matrix)


def _speed(segment: Segment) -> float:
    """Bytes per second through the segment; a ring counts both directions."""
    ways = 2 if segment.is_ring else 1
    return ways * segment.dim.level.link_bytes_per_s / segment.stride
