"""Splits mesh axes into sub-axes, so that a reshape can use the part of an axis that fits.

Example: a dim of 4 heads times 64 is cut along an axis of 8. The cut is 4 ways over heads
and 2 ways within a head: the axis spills over to the next factor. Propagation knows only
whole axes, so the axis is replaced by two sub-axes, of sizes 4 and 2, which together mean
the same (Shardy's sub-axes).
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from meshwright.errors import MeshError
from meshwright.machine import Mesh
from meshwright.partitioner.propagate.graph import Graph
from meshwright.program.ir import Sharding

SUB_AXIS = ":"
"""The character between an axis and the number of its sub-axis, as in `model:0`.

ASCII, since names of axes travel through exported programs.
"""


def split_axes(
    graph: Graph, mesh: Mesh, kept: Collection[str] = ()
) -> tuple[Mesh, Mapping[str, tuple[str, ...]]]:
    """The mesh over sub-axes, and the sub-axes of each axis, major to minor.

    An axis that fits every reshape is its own only sub-axis. So is an axis in `kept`: a
    cut along it stops at the major part of a reshape if it does not fit. Raises
    `MeshError` for an axis whose name could be the name of a sub-axis.
    """
    taken = [axis for axis in mesh.axes if SUB_AXIS in axis]
    if taken:
        raise MeshError(f"axis name {taken[0]!r} holds {SUB_AXIS!r}, which names parts")
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
    sub_axes: dict[str, tuple[str, ...]] = {}
    for axis, size in mesh.sizes:
        parts = (size,) if axis in kept else _split(size, majors)
        names = (
            (axis,)
            if len(parts) == 1
            else tuple(f"{axis}{SUB_AXIS}{i}" for i in range(len(parts)))
        )
        sub_axes[axis] = names
        sizes.update(zip(names, parts, strict=True))
    return Mesh(sizes, mesh.devices), sub_axes


def _split(size: int, majors: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """Factors of `size` that fill the major extents of each product, one after another.

    majors: for each dim that is a product of factors, all extents but the last.
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


def whole_axes(sharding: Sharding, sub_axes: Sequence[str]) -> Sharding | None:
    """The sharding in the user's axes; `None` if part of an axis cuts some dim.

    sub_axes: all axes of the mesh over sub-axes, major to minor.
    """
    dims: list[tuple[str, ...]] = []
    for cut in sharding.dims:
        axes = user_axes(cut)
        complete = (s for a in axes for s in sub_axes if s.partition(SUB_AXIS)[0] == a)
        if tuple(complete) != cut:
            return None
        dims.append(axes)
    return Sharding(tuple(dims))


def join_sub_axes(
    axes: tuple[str, ...], sub_axes: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """The axes of one dim, with complete runs of sub-axes replaced by their axis."""
    for axis, parts in sub_axes.items():
        for i in range(len(axes) - len(parts) + 1):
            if axes[i : i + len(parts)] == parts:
                rest = {a: p for a, p in sub_axes.items() if a != axis}
                return join_sub_axes((*axes[:i], axis, *axes[i + len(parts) :]), rest)
    return axes


def user_axes(axes: Iterable[str]) -> tuple[str, ...]:
    """The user's axes that sub-axes are part of, each once, in order."""
    return tuple(dict.fromkeys(axis.partition(SUB_AXIS)[0] for axis in axes))
