"""Mesh axes whose all-reduces are faster level by level on a machine."""

from collections.abc import Mapping
from itertools import groupby

from meshwright.machine import Dim, Mesh
from meshwright.predict.estimate import Estimate
from meshwright.predict.reductions import reductions
from meshwright.predict.simulate.timeline import collective_overlaps
from meshwright.program.ir import num_bytes

_LEAST_GAIN = 1.01
"""Speed-up of the fastest reduction program over one all-reduce that is worth a change."""


def levels_that_gain(found: Estimate, mesh: Mesh) -> Mapping[str, tuple[int, ...]]:
    """Sizes at each level, outermost first, of axes whose all-reduces gain by them.

    mesh: the user's; axes that lowering has split already are left out. The gain is that
    of the fastest reduction program for the largest all-reduce along the axis.
    """
    largest: dict[str, int] = {}
    for fusion, _, _ in collective_overlaps(found.timeline):
        if fusion.root.kind == "all_reduce":
            for axis in fusion.root.params["axes"]:
                size = num_bytes(fusion.root.operands[0])
                largest[axis] = max(size, largest.get(axis, 0))
    rows = dict(zip(found.mesh.axes, found.placement.matrix, strict=True))
    sizes: dict[str, tuple[int, ...]] = {}
    for axis in mesh.axes:
        if axis in largest and axis in rows:
            levels = _level_sizes(rows[axis], found.machine.grid)
            if len(levels) > 1 and _gains(found, axis, largest[axis]):
                sizes[axis] = levels
    return sizes


def _level_sizes(row: tuple[int, ...], grid: tuple[Dim, ...]) -> tuple[int, ...]:
    """The devices of an axis at each level, outermost first; levels of one are left out."""
    sizes: list[int] = []
    pairs = zip(row, grid, strict=True)
    for _, dims in groupby(pairs, key=lambda pair: pair[1].level):
        size = 1
        for extent, _ in dims:
            size *= extent
        if size > 1:
            sizes.append(size)
    return tuple(sizes)


def _gains(found: Estimate, axis: str, size: int) -> bool:
    """Whether the fastest program for an all-reduce is worth a change."""
    grid, matrix = found.machine.grid, found.placement.matrix
    programs = reductions(
        [dim.extent for dim in grid],
        matrix,
        [found.mesh.axes.index(axis)],
        machine=found.machine,
        num_bytes=size,
        most_steps=3,
    )
    return (programs.speed_up or 1.0) >= _LEAST_GAIN
