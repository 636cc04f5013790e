"""Splits mesh axes so that each reshape can take what fits of them.

A dim of 4 heads times 64 cut along an axis of 8 is cut 4 ways over heads and 2 ways
within: the axis spills onto the next factor. Propagation knows only whole axes, so the
axis is replaced by units (4, 2) that together mean the same.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from meshwright.errors import MeshError
from meshwright.machine import Mesh
from meshwright.partitioner.propagate.graph import Graph
from meshwright.program.ir import Sharding

UNIT = ":"
"""Between an axis and the number of one of its units: `model:0`. ASCII, since the name
travels through exported programs."""


def split_axes(
    graph: Graph, mesh: Mesh, kept: Collection[str] = ()
) -> tuple[Mesh, Mapping[str, tuple[str, ...]]]:
    """The mesh over units, and the units of each axis, major to minor.

    An axis that fits every reshape is its own single unit, and so is one to be `kept`:
    what does not fit into a reshape's major part then stops there. Raises `MeshError`
    for an axis whose name could be that of a unit.
    """
    taken = [axis for axis in mesh.axes if UNIT in axis]
    if taken:
        raise MeshError(f"axis name {taken[0]!r} holds {UNIT!r}, which names parts")
    majors = sorted(
        {
            tuple(node.sizes[f] for f in factors[:-1])
            for node in graph.nodes
            if node.has_products
            for _, dims in (*node.ins, *node.outs)
            for factors in dims
            if len(factors) > 1
        }
    )
    sizes: dict[str, int] = {}
    units: dict[str, tuple[str, ...]] = {}
    for axis, size in mesh.sizes:
        parts = (size,) if axis in kept else _split(size, majors)
        names = (
            (axis,)
            if len(parts) == 1
            else tuple(f"{axis}{UNIT}{i}" for i in range(len(parts)))
        )
        units[axis] = names
        sizes.update(zip(names, parts, strict=True))
    return Mesh(sizes, mesh.devices), units


def _split(size: int, majors: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """Factors of `size`, such that for each product its major extents are filled in turn.

    majors: of each dim that is a product, all extents but the last.
    """
    parts = [size]
    for extents in majors:
        position = 0
        for extent in extents:
            position, is_filled = _fill(parts, position, extent)
            if not is_filled:
                break
    return tuple(parts)


def _fill(parts: list[int], position: int, extent: int) -> tuple[int, bool]:
    """Take parts from `position` on to fill an extent, splitting the last one taken.

    Returns the first part not taken, and whether the extent is filled exactly.
    """
    while extent > 1 and position < len(parts):
        common = math.gcd(extent, parts[position])
        if common == 1:
            break
        if common < parts[position]:
            parts[position : position + 1] = [common, parts[position] // common]
        extent //= common
        position += 1
    return position, extent == 1


def whole_axes(sharding: Sharding, units: Sequence[str]) -> Sharding | None:
    """The sharding in the user's axes; None where some dim is cut by part of an axis.

    units: all axes of the mesh over units, major to minor.
    """
    dims: list[tuple[str, ...]] = []
    for cut in sharding.dims:
        axes = user_axes(cut)
        if tuple(u for a in axes for u in units if u.partition(UNIT)[0] == a) != cut:
            return None
        dims.append(axes)
    return Sharding(tuple(dims))


def user_axes(axes: Iterable[str]) -> tuple[str, ...]:
    """Units by the names of the axes that they are part of, each once, in order."""
    return tuple(dict.fromkeys(axis.partition(UNIT)[0] for axis in axes))
