"""Mesh axes whose all-reduces are faster level by level on a machine."""

from collections.abc import Mapping, Sequence
from typing import Any

from meshwright.features.collectives.reductions import reductions
from meshwright.machine import Machine, Mesh
from meshwright.partitioner.propagate.sub_axes import SUB_AXIS
from meshwright.predict.estimate import Estimate
from meshwright.predict.simulate.timeline import collective_overlaps
from meshwright.program.ir import num_bytes

_LEAST_GAIN = 1.01
"""Speed-up of the fastest reduction program over one all-reduce that is worth a change."""


def levels_that_gain(found: Estimate, mesh: Mesh) -> Mapping[str, tuple[int, ...]]:
    """Sizes at each level, outermost first, of axes whose all-reduces gain by them.

    mesh: the user's. The gain is that of the fastest reduction program for the largest
    all-reduce along the axis.
    """
    largest: dict[str, int] = {}
    for fusion, _, _ in collective_overlaps(found.timeline):
        if fusion.root.kind == "all_reduce":
            axes: Any = fusion.root.params["axes"]
            size = num_bytes(fusion.root.operands[0])
            for axis in axes:
                largest[axis] = max(size, largest.get(axis, 0))
    sizes: dict[str, tuple[int, ...]] = {}
    for axis in mesh.axes:
        rows = [i for i, each in enumerate(found.mesh.axes) if _is_part(each, axis)]
        size = max((largest.get(found.mesh.axes[i], 0) for i in rows), default=0)
        levels = _level_sizes([found.placement.matrix[i] for i in rows], found.machine)
        if size and len(levels) > 1 and _gains(found, rows, size):
            sizes[axis] = levels
    return sizes


def _is_part(sub_axis: str, axis: str) -> bool:
    """Whether an axis of the lowered program is a mesh axis, or a sub-axis of it."""
    return sub_axis.partition(SUB_AXIS)[0] == axis


def _level_sizes(rows: Sequence[tuple[int, ...]], machine: Machine) -> tuple[int, ...]:
    """The devices of an axis at each level, outermost first; levels of one are left out.

    rows: those of its sub-axes, which need not lie in this order: an axis that is split
    into these sizes can be placed so.
    """
    sizes: dict[int, int] = {}
    for row in rows:
        for dim, extent in zip(machine.grid, row, strict=True):
            level = machine.levels.index(dim.level)
            sizes[level] = sizes.get(level, 1) * extent
    return tuple(
        sizes[level] for level in sorted(sizes, reverse=True) if sizes[level] > 1
    )


def _gains(found: Estimate, rows: Sequence[int], size: int) -> bool:
    """Whether the fastest program for an all-reduce is worth a change."""
    grid, matrix = found.machine.grid, found.placement.matrix
    programs = reductions(
        [dim.extent for dim in grid],
        matrix,
        rows,
        machine=found.machine,
        num_bytes=size,
        most_steps=3,
    )
    return (programs.speed_up or 1.0) >= _LEAST_GAIN
