"""Where the axes of a mesh lie on the grid of a machine.

A placement is a matrix of ints (P2: Xie et al., "Synthesizing Optimal Parallelism
Placement and Reduction Strategies", MLSys 2022): rows are mesh axes, columns grid dims;
the product of a row is the axis, of a column the dim. Inside a dim, axes that stand
earlier in the mesh are major.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from meshwright.errors import MachineError
from meshwright.machine.fabric import Dim
from meshwright.machine.machine import Machine
from meshwright.machine.mesh import Mesh


@dataclass(frozen=True, slots=True)
class Segment:
    """The part of a grid dim along which one mesh axis runs.

    extent: devices of the axis along the dim. stride: devices of the dim from one to
        the next, so that as many groups share each link.
    is_ring: the ends are joined.
    """

    dim: Dim
    extent: int
    stride: int

    @property
    def is_ring(self) -> bool:
        """Only a whole dim closes; a strided part runs around it as well."""
        return self.dim.is_ring and self.extent * self.stride == self.dim.extent


@dataclass(frozen=True, slots=True)
class Placement:
    """For each mesh axis its segments, those of inner levels last."""

    machine: Machine
    segments: tuple[tuple[str, tuple[Segment, ...]], ...]

    def of(self, axes: tuple[str, ...]) -> tuple[Segment, ...]:
        """The segments of some axes together."""
        chosen = dict(self.segments)
        return tuple(segment for axis in axes for segment in chosen[axis])


def require_size(mesh: Mesh, machine: Machine) -> None:
    """`MachineError` where mesh and machine differ in size."""
    if mesh.num_devices != machine.num_devices:
        raise MachineError(
            f"mesh {mesh} has {mesh.num_devices} devices, machine {machine.name} "
            f"{machine.num_devices}"
        )


def place_mesh(mesh: Mesh, machine: Machine) -> Placement:
    """The placement under which few groups share a link, and the last axes are fastest.

    Schedules put what talks most on the last axis: of the placements in which axes own
    whole dims as far as they can, it gets the most bandwidth, then the one before it.
    `MachineError` where mesh and machine differ in size.
    """
    require_size(mesh, machine)
    sizes = tuple(size for _, size in mesh.sizes)
    extents = tuple(dim.extent for dim in machine.grid)
    best = max(matrices(sizes, extents), key=lambda m: _preference(m, machine.grid))
    rows = zip(mesh.axes, best, strict=True)
    columns = tuple(zip(*best, strict=True)) if machine.grid else ()
    return Placement(
        machine,
        tuple(
            (axis, tuple(_segments(index, row, columns, machine.grid)))
            for index, (axis, row) in enumerate(rows)
        ),
    )


def _segments(
    index: int,
    row: tuple[int, ...],
    columns: tuple[tuple[int, ...], ...],
    grid: tuple[Dim, ...],
) -> Iterator[Segment]:
    for extent, column, dim in zip(row, columns, grid, strict=True):
        if extent > 1:
            yield Segment(dim, extent, math.prod(column[index + 1 :]))


Matrix = tuple[tuple[int, ...], ...]


@cache
def matrices(rows: tuple[int, ...], columns: tuple[int, ...]) -> tuple[Matrix, ...]:
    """All matrices of positive ints with these row and column products."""
    if not rows:
        return ((),) if math.prod(columns) == 1 else ()
    found: list[Matrix] = []
    for row in _factorings(rows[0], columns):
        left = tuple(c // r for c, r in zip(columns, row, strict=True))
        found += [(row, *rest) for rest in matrices(rows[1:], left)]
    return tuple(found)


def _factorings(size: int, limits: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Ways to write `size` as a product of divisors of the limits."""
    if not limits:
        if size == 1:
            yield ()
        return
    for first in range(1, math.gcd(size, limits[0]) + 1):
        if size % first == 0 and limits[0] % first == 0:
            for rest in _factorings(size // first, limits[1:]):
                yield (first, *rest)


def _preference(matrix: Matrix, grid: tuple[Dim, ...]) -> tuple[object, ...]:
    """Few groups on one link, then bandwidth from the last axis to the first."""
    columns = tuple(zip(*matrix, strict=True)) if grid else ()
    strides = [
        segment.stride
        for index, row in enumerate(matrix)
        for segment in _segments(index, row, columns, grid)
    ]
    speeds: list[float] = [-max(strides, default=1)]
    for index in range(len(matrix) - 1, -1, -1):
        segments = tuple(_segments(index, matrix[index], columns, grid))
        speeds.append(min((_speed(s) for s in segments), default=math.inf))
        speeds.append(sum(_speed(s) for s in segments))
    return (*speeds, matrix)


def _speed(segment: Segment) -> float:
    """Bytes per second through the segment in both directions of a ring."""
    ways = 2 if segment.is_ring else 1
    return ways * segment.dim.level.link_bytes_per_s / segment.stride
