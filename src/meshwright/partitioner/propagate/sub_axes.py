"""Splits mesh axes into sub-axes, so that a reshape can use part of an axis.

Example: an axis of 8 shards a dim of 4 heads times 64, which a reshape splits into
heads and features. The axis splits the heads 4 ways, and each head 2 ways. Propagation
handles only complete axes, so the axis is replaced by two sub-axes, of sizes 4 and 2,
which together mean the same (Shardy's sub-axes).
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from meshwright.errors import MeshError
from meshwright.machine import Mesh
from meshwright.partitioner.propagate.graph import Graph, Node
from meshwright.program.ir import Sharding

SUB_AXIS = ":"
"""The character between an axis and the number of its sub-axis, as in `model:0`.
ASCII, since exported programs contain names of axes.
"""


def split_axes(
    graph: Graph,
    mesh: Mesh,
    kept: Collection[str] = (),
    given: Mapping[str, tuple[int, ...]] | None = None,
) -> tuple[Mesh, Mapping[str, tuple[str, ...]]]:
    """The mesh over sub-axes, and the sub-axes of each axis, major to minor.

    An axis that fits every reshape stays one axis. So do sequential axes (loops in
    time) and those in `kept`: if such an axis does not fit a reshape, sharding stops
    there at the major factor.

    given: sizes into which an axis is split in any case.

    Raises `MeshError` for an axis in both `kept` and `given`, and for an axis whose
    name could be the name of a sub-axis.
    """
    taken = [axis for axis in mesh.axes if SUB_AXIS in axis]
    if taken:
        raise MeshError(f"axis name {taken[0]!r} holds {SUB_AXIS!r}, which names parts")
    start = given or {}
    _require_levels(start, mesh, kept)
    majors = sorted(
        {
            tuple(node.sizes[f] for f in factors[:-1])
            for node in graph.nodes
            if node.has_products
            for _, dims in (*node.ins, *node.outs)
            for factors in dims
            if len(factors) > 1 and not _is_special(node, factors[0])
        }
    )
    sizes: dict[str, int] = {}
    sub_axes: dict[str, tuple[str, ...]] = {}
    for axis, size in mesh.sizes:
        whole = start.get(axis, (size,))
        is_kept = axis in kept or axis in mesh.sequential
        parts = whole if is_kept else _split(whole, majors)
        sub_axes[axis] = (axis,)
        if len(parts) > 1:
            sub_axes[axis] = tuple(f"{axis}{SUB_AXIS}{i}" for i in range(len(parts)))
        sizes.update(zip(sub_axes[axis], parts, strict=True))
    in_time = {axis: sizes.pop(axis) for axis in mesh.sequential}
    return Mesh(sizes, mesh.devices, sequential=in_time), sub_axes


def _is_special(node: Node, factor: int) -> bool:
    """Whether devices exchange data if the factor is sharded, as in windows and slices.

    Such a dim is only sharded along complete axes.
    """
    return node.rule is not None and factor in node.rule.special


def _require_levels(start: Iterable[str], mesh: Mesh, kept: Collection[str]) -> None:
    """Raise `MeshError` for the first axis in `start` that must not be split."""
    for axis in sorted(start):
        if axis in kept:
            raise MeshError(
                f"axis {axis!r} is used by name in the program, in a shard_map; it cannot "
                "be split into levels"
            )
        if axis in mesh.sequential:
            raise MeshError(
                f"axis {axis!r} is sequential; only an axis of devices has levels"
            )


def _split(
    whole: tuple[int, ...], majors: Iterable[tuple[int, ...]]
) -> tuple[int, ...]:
    """Sizes of the sub-axes of an axis, so that each reshape can shard its major dims.

    whole: the sizes into which the axis is split already. majors: for each dim that is
        a product of factors, the extents of all factors but the last. Each extent is
        filled by as many sub-axes as divide it.
    """
    parts = list(whole)
    for extents in majors:
        position = 0
        for extent in extents:
            position, is_filled = _fill(parts, position, extent)
            if not is_filled:
                break
    return tuple(parts)


def _fill(parts: list[int], position: int, extent: int) -> tuple[int, bool]:
    """Use the sizes in `parts` from `position` on to divide an extent; may split one.

    Returns the position of the first unused size, and whether the sizes that were used
    multiply to the extent exactly.
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
    """The sharding in the user's axes; `None` if only part of an axis shards some dim.

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
    """The axes of one dim, with each complete run of sub-axes replaced by its axis."""
    for axis, parts in sub_axes.items():
        for i in range(len(axes) - len(parts) + 1):
            if axes[i : i + len(parts)] == parts:
                rest = {a: p for a, p in sub_axes.items() if a != axis}
                return join_sub_axes((*axes[:i], axis, *axes[i + len(parts) :]), rest)
    return axes


def user_axes(axes: Iterable[str]) -> tuple[str, ...]:
    """The user's axes to which sub-axes belong, without repetition, in order."""
    return tuple(dict.fromkeys(axis.partition(SUB_AXIS)[0] for axis in axes))


def show_axis(axis: str, sizes: Mapping[str, int]) -> str:
    """The quoted name of an axis for messages; for a sub-axis also which part it is.

    sizes: the sizes of all sub-axes, major to minor.

    >>> show_axis("data:0", {"data:0": 2, "data:1": 4, "model": 2})
    "'data:0' (the first factor of 'data', 8 = 2 x 4)"
    """
    user, mark, position = axis.partition(SUB_AXIS)
    if not mark:
        return repr(axis)
    factors = [size for name, size in sizes.items() if user_axes((name,)) == (user,)]
    which = _ORDINALS[min(int(position), len(_ORDINALS) - 1)]
    product = " x ".join(map(str, factors))
    return (
        f"{axis!r} (the {which} factor of {user!r}, {math.prod(factors)} = {product})"
    )


_ORDINALS = ("first", "second", "third", "next")
