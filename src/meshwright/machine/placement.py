"""Placements: the assignment of mesh axes to the dims of a machine's grid.

A placement is a matrix of ints (P2: Xie et al., "Synthesizing Optimal Parallelism
Placement and Reduction Strategies", MLSys 2022). Each row is a mesh axis, and its
product is the axis's size. Each column is a grid dim, and its product is the dim's
extent. For 4 nodes of 16 devices, the row [2 8] is an axis of 16: over 2 nodes and 8
devices of each. Inside a dim, an earlier axis of the mesh is major.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

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
        """Whether links join the ends of the segment to a ring.

        That holds if the dim is a ring, and the segment spans it.
        """
        return self.dim.is_ring and self.extent * self.stride == self.dim.extent

    def __str__(self) -> str:
        """Number of devices and stride along a dim: `4 of 8 x ici at stride 2`."""
        of = "" if self.extent == self.dim.extent else f" of {self.dim.extent}"
        apart = "" if self.stride == 1 else f" at stride {self.stride}"
        return f"{self.extent}{of} x {self.dim.level.name}{apart}"


@dataclass(frozen=True, slots=True)
class Placement:
    """The assignment of mesh axes to a machine's grid.

    segments: for each mesh axis, the parts of grid dims along which it runs; those of
        inner levels come last.
    matrix: number of devices of each axis (row) along each dim of the grid (column).
    """

    machine: Machine
    segments: tuple[tuple[str, tuple[Segment, ...]], ...]
    matrix: Matrix = ()

    def of(self, axes: tuple[str, ...]) -> tuple[Segment, ...]:
        """The segments of the given axes, in the order of the axes."""
        chosen = dict(self.segments)
        return tuple(segment for axis in axes for segment in chosen[axis])

    def device_order(self) -> tuple[int, ...]:
        """Positions on the grid of the mesh's devices, in the mesh's row-major order.

        Positions are row-major as well, the outermost dim first. If `devices` is in the
        grid's order, `mw.Mesh(axes, [devices[i] for i in order])` has this placement.
        """
        columns = tuple(zip(*self.matrix, strict=True))
        digits = [tuple(product(*(range(size) for size in row))) for row in self.matrix]
        return tuple(_grid_index(each, columns) for each in product(*digits))

    def __str__(self) -> str:
        """One line, as `data 2 x network, model 2 x network + 8 x nvlink`."""
        parts = [
            f"{axis} {' + '.join(map(str, segments)) or 'on one device'}"
            for axis, segments in self.segments
        ]
        return ", ".join(parts)


def _grid_index(
    digits: tuple[tuple[int, ...], ...], columns: tuple[tuple[int, ...], ...]
) -> int:
    """The row-major position of a device on a grid.

    digits: the device's coordinate along each axis (row) and dim (column). columns: for
        each dim, the number of devices of each axis along it.
    """
    index = 0
    for dim, sizes in enumerate(columns):
        for axis, size in enumerate(sizes):
            index = index * size + digits[axis][dim]
    return index


def require_size(mesh: Mesh, machine: Machine) -> None:
    """Raise `MachineError` if mesh and machine have different numbers of devices."""
    if mesh.num_devices != machine.num_devices:
        raise MachineError(
            f"mesh {mesh} has {mesh.num_devices} devices, machine {machine.name} "
            f"{machine.num_devices}"
        )


def place_mesh(mesh: Mesh, machine: Machine) -> Placement:
    """The placement that shares links least and gives the last axes the fastest links.

    First, the largest number of groups of devices that share one link is as small as
    possible. Among such placements the last axis gets the most bandwidth, then the axis
    before it, and so on, because schedules put the heaviest communication on the last
    axis.

    Raises `MachineError` if mesh and machine have different numbers of devices.
    """
    candidates = placement_matrices(mesh, machine)
    best = max(candidates, key=lambda m: _preference(m, machine.grid))
    return placed_by(best, mesh, machine)


def placement_matrices(mesh: Mesh, machine: Machine) -> tuple[Matrix, ...]:
    """The matrices of all placements of a mesh on a machine.

    Raises `MachineError` if mesh and machine have different numbers of devices.
    """
    require_size(mesh, machine)
    sizes = tuple(size for _, size in mesh.sizes)
    return matrices(sizes, tuple(dim.extent for dim in machine.grid))


def placed_by(matrix: Matrix, mesh: Mesh, machine: Machine) -> Placement:
    """The placement that a matrix describes; its rows are the mesh's axes."""
    segments = zip(mesh.axes, _segments(matrix, machine.grid), strict=True)
    return Placement(machine, tuple(segments), matrix)


def _segments(matrix: Matrix, grid: tuple[Dim, ...]) -> list[tuple[Segment, ...]]:
    """Segments of each mesh axis: one per dim along which it has several devices."""
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
    """The key by which `place_mesh` compares placements; the largest is best.

    First, as few groups of devices as possible share a link. Then the last axes of the
    mesh have as much bandwidth as possible.
    """
    placed = _segments(matrix, grid)
    strides = [segment.stride for segments in placed for segment in segments]
    speeds: list[float] = [-max(strides, default=1)]
    for segments in reversed(placed):
        speeds.append(min((_speed(s) for s in segments), default=math.inf))
        speeds.append(sum(_speed(s) for s in segments))
    return (*speeds, matrix)


def _speed(segment: Segment) -> float:
    """Bytes per second along a segment; a ring counts both directions."""
    ways = 2 if segment.is_ring else 1
    return ways * segment.dim.level.link_bytes_per_s / segment.stride
