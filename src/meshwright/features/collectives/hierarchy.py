"""Hierarchies: a machine as the number of children at each level, outermost first.

The hierarchy (4, 16) is 4 nodes of 16 devices (the notation of P2, MLSys 2022).
`machine_on` gives a machine such a grid; `placements` lists all ways to place mesh axes
on it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from meshwright.errors import CollectiveError, MachineError, MeshError
from meshwright.machine.machine import Kind, Level, Machine, grid_of
from meshwright.machine.placement import Matrix, matrices


@dataclass(frozen=True, slots=True)
class Placements:
    """All placements of mesh axes on a hierarchy such as 4 nodes of 16 devices.

    hierarchy: number of children at each level, from the outermost to the innermost.
    axes: size of each mesh axis.
    matrices: one matrix per placement (P2), with a row for each axis and a column for
        each level. An entry is the number of parts of the axis at the level, so that
        products of rows are `axes` and products of columns are `hierarchy`.
    """

    hierarchy: tuple[int, ...]
    axes: tuple[int, ...]
    matrices: tuple[Matrix, ...]

    def __len__(self) -> int:
        return len(self.matrices)

    def __iter__(self) -> Iterator[Matrix]:
        return iter(self.matrices)

    def __getitem__(self, index: int) -> Matrix:
        return self.matrices[index]

    def __str__(self) -> str:
        head = (
            f"{len(self)} placements of axes {show_sizes(self.axes)} on hierarchy "
            f"{show_sizes(self.hierarchy)}"
        )
        return "\n".join((head, *(f"  {show_matrix(m)}" for m in self.matrices)))


def placements(hierarchy: Sequence[int], axes: Sequence[int]) -> Placements:
    """All placements of mesh axes of the given sizes on a hierarchy of devices.

    hierarchy: number of children at each level, from the outermost to the innermost.
    In the first placement below, the axis of 2 runs inside nodes; the axis of 32 runs
    over 4 nodes and 8 devices of each.

    >>> print(placements(hierarchy=[4, 16], axes=[2, 32]))
    2 placements of axes 2x32 on hierarchy 4x16
      [[1 2] [4 8]]
      [[2 1] [2 16]]
    """
    levels, sizes = whole_sizes(hierarchy, "hierarchy"), whole_sizes(axes, "axes")
    if math.prod(levels) != math.prod(sizes):
        raise MeshError(
            f"axes {show_sizes(sizes)} have {math.prod(sizes)} devices, hierarchy "
            f"{show_sizes(levels)} {math.prod(levels)}; both must be equal"
        )
    return Placements(levels, sizes, matrices(sizes, levels))


def require_placement(
    matrix: Sequence[Sequence[int]], hierarchy: Sequence[int]
) -> Matrix:
    """A placement matrix as tuples, if it fits a hierarchy.

    Raises `MeshError` unless each column multiplies to the size of its level.
    """
    try:
        rows = tuple(whole_sizes(row, "a row of the placement") for row in matrix)
    except TypeError:
        raise MeshError(
            f"placement is {matrix!r:.60}; wanted a matrix, such as [[1, 2], [4, 8]]"
        ) from None
    levels = whole_sizes(hierarchy, "hierarchy")
    if not rows or any(len(row) != len(levels) for row in rows):
        raise MeshError(
            f"placement {show_matrix(rows)} must have {len(levels)} columns, one for each "
            f"level of hierarchy {show_sizes(levels)}"
        )
    products = tuple(map(math.prod, zip(*rows, strict=True)))
    if products != levels:
        raise MeshError(
            f"columns of placement {show_matrix(rows)} have products "
            f"{show_sizes(products)}; hierarchy is {show_sizes(levels)}"
        )
    return rows


def whole_sizes(sizes: Sequence[int], what: str) -> tuple[int, ...]:
    """The sizes as a tuple; raises `MeshError` unless they are ints of 1 or more."""
    if isinstance(sizes, str) or not isinstance(sizes, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise MeshError(
            f"{what} is {sizes!r:.60}; wanted a list of ints, such as [4, 16]"
        )
    found = tuple(sizes)
    if not found:
        raise MeshError(f"{what} is empty; wanted a list of ints, such as [4, 16]")
    for size in found:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise MeshError(f"{what} has {size!r:.40}; wanted ints of 1 or more")
    return found


def show_sizes(sizes: Sequence[int]) -> str:
    """The sizes joined by `x`, such as `4x16`."""
    return "x".join(map(str, sizes))


def show_matrix(matrix: Sequence[Sequence[int]]) -> str:
    """A matrix in one line: `[[1 2] [4 8]]`."""
    return f"[{' '.join(f'[{" ".join(map(str, row))}]' for row in matrix)}]"


# -- the machine of a hierarchy ---------------------------------------------------------


def machine_on(machine: Machine, hierarchy: Sequence[int]) -> Machine:
    """A machine of the same kind with the grid and number of devices of a hierarchy.

    A switch takes one entry of the hierarchy, a torus one for each of its dims. If
    several grids are possible, the one with most dims in inner levels is taken. Raises
    `MachineError`, with the sizes that the levels allow, if there is none.
    """
    sizes = whole_sizes(hierarchy, "hierarchy")
    if tuple(dim.extent for dim in machine.grid) == sizes:
        return machine
    shapes = _shapes(machine.levels, sizes)
    if shapes is None:
        can = ", ".join(map(_capacity, reversed(machine.levels))) or "none"
        raise MachineError(
            f"hierarchy {show_sizes(sizes)} does not match {machine.name}, whose levels "
            f"join, from the outermost: {can}; wanted one number for each switch and for "
            "each dim of a torus"
        )
    grid = grid_of(tuple(zip(machine.levels, shapes, strict=False)))
    return replace(machine, num_devices=math.prod(sizes), grid=grid)


def _capacity(level: Level) -> str:
    return f"{level.name} ({level.kind.value}) at most {show_sizes(level.extents)}"


def _shapes(
    levels: tuple[Level, ...], sizes: tuple[int, ...]
) -> tuple[tuple[int, ...], ...] | None:
    """The grid shape of each level of links, innermost first.

    `None` if the levels have no grid of these sizes.
    """
    if not sizes:
        return ()
    if not levels:
        return None
    level, *outer = levels
    most = len(level.extents) if level.kind is Kind.TORUS else 1
    for count in range(min(most, len(sizes)), 0, -1):
        shape = sizes[len(sizes) - count :]
        if not _fits(level, shape):
            continue
        rest = _shapes(tuple(outer), sizes[: len(sizes) - count])
        if rest is not None:
            return (shape, *rest)
    return None


def _fits(level: Level, shape: tuple[int, ...]) -> bool:
    """Whether a grid shape is within the largest extents of a level, in any order."""
    largest = sorted(level.extents, reverse=True)[: len(shape)]
    return all(
        n <= most for n, most in zip(sorted(shape, reverse=True), largest, strict=True)
    )


def require_axes(reduce_axes: Sequence[int], num_axes: int) -> tuple[int, ...]:
    """Sorted positions of the mesh axes to reduce over.

    Raises `CollectiveError` for a repeated one, or one that the mesh does not have.
    """
    if not isinstance(reduce_axes, Sequence) or isinstance(reduce_axes, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CollectiveError(
            f"reduce_axes is {reduce_axes!r:.40}; wanted a list of ints, such as [1]"
        )
    for axis in reduce_axes:
        if isinstance(axis, bool) or not isinstance(axis, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise CollectiveError(f"reduce_axes has {axis!r:.40}; wanted ints")
        if not 0 <= axis < num_axes:
            raise CollectiveError(
                f"reduce_axes has {axis}; the placement has axes 0 to {num_axes - 1}"
            )
    if len(set(reduce_axes)) < len(reduce_axes):
        raise CollectiveError(f"reduce_axes {list(reduce_axes)} names an axis twice")
    return tuple(sorted(reduce_axes))
