"""The `by_levels` tactic, which splits all-reduces along an axis level by level."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshwright.errors import TacticError
from meshwright.machine import Mesh
from meshwright.partitioner.propagate.state import AxisLevels
from meshwright.partitioner.structure.workspace import Workspace
from meshwright.partitioner.tactics.tactic import TacticKind, as_code

LEAST_BYTES = 2**16
"""Default size in bytes below which an all-reduce is not split.

Two more collectives cost a few network latencies, about 10 us each, in which a card of
8 GB/s sends 80 kB.
"""


@dataclass(frozen=True, slots=True, repr=False)
class ByLevels:
    """All-reduce along an axis level by level; the sizes multiply to the axis's size.

    before: all_reduce[data]        after: reduce_scatter[data:1], all_reduce[data:0],
    all_gather[data:1]
    """

    axis: str
    sizes: tuple[int, ...]
    least_bytes: int = LEAST_BYTES
    kind = TacticKind.STRATEGY
    rewrite = None

    @property
    def axes(self) -> tuple[str, ...]:
        return (self.axis,)

    def apply(self, work: Workspace) -> None:
        """Check the axis only: it was split into sub-axes before the first tactic."""
        work.mesh.require(self.axis)

    def __str__(self) -> str:
        least = f", least_bytes={self.least_bytes}"
        least = "" if self.least_bytes == LEAST_BYTES else least
        return f"by_levels({self.axis!r}, {list(self.sizes)}{least})"

    def __repr__(self) -> str:
        return as_code(self)


def by_levels(
    axis: str, sizes: Sequence[int], least_bytes: int = LEAST_BYTES
) -> ByLevels:
    """All-reduce along an axis inside nodes first: `by_levels("data", [4, 8])`.

    The sum is reduce-scattered among neighbours of the innermost level, all-reduced
    across the outer levels, and all-gathered (P2's fastest program on most machines of
    two levels). So each network link carries an 8th of the value.
    sizes: number of devices of the axis at each level, from the outermost to the
        innermost; their product is the axis's size.
    least_bytes: smaller values, and those without a dim that the innermost size divides,
        are all-reduced at once.
    `Plan.levels` proposes the tactics for a machine.
    """
    is_list = isinstance(sizes, Sequence) and all(type(n) is int for n in sizes)
    if not is_list or len(sizes) < 2 or min(sizes) < 2:
        raise TacticError(
            f"by_levels has sizes {sizes!r:.60}; wanted two or more ints above 1, such as "
            "[4, 8] for 4 nodes of 8 devices"
        )
    if type(least_bytes) not in (int, float) or not least_bytes >= 0:
        raise TacticError(f"least_bytes is {least_bytes!r:.60}; wanted 0 or more")
    return ByLevels(axis, tuple(sizes), least_bytes)


def level_sizes(tactics: Sequence[object], mesh: Mesh) -> Mapping[str, tuple[int, ...]]:
    """The sizes of levels into which tactics split axes, by axis, or `TacticError`."""
    sizes: dict[str, tuple[int, ...]] = {}
    for tactic in tactics:
        if not isinstance(tactic, ByLevels):
            continue
        if tactic.axis in sizes:
            raise TacticError(f"{tactic}: axis {tactic.axis!r} has levels already")
        product = math.prod(tactic.sizes)
        if product != mesh.size(tactic.axis):
            raise TacticError(
                f"{tactic}: sizes multiply to {product}, axis {tactic.axis!r} has "
                f"{mesh.size(tactic.axis)} devices"
            )
        sizes[tactic.axis] = tactic.sizes
    return sizes


def axis_levels(
    tactics: Sequence[object], sub_axes: Mapping[str, tuple[str, ...]], mesh: Mesh
) -> tuple[AxisLevels, ...]:
    """The levels of axes that tactics split; `mesh` is that of all sub-axes."""
    return tuple(
        AxisLevels(_runs(sub_axes[each.axis], each.sizes, mesh), each.least_bytes)
        for each in tactics
        if isinstance(each, ByLevels)
    )


def _runs(
    parts: tuple[str, ...], sizes: tuple[int, ...], mesh: Mesh
) -> tuple[tuple[str, ...], ...]:
    """The sub-axes of one axis in groups, one group for each level's size."""
    runs: list[tuple[str, ...]] = []
    left = list(parts)
    for size in sizes:
        run: list[str] = []
        while mesh.size(run) < size:
            run.append(left.pop(0))
        assert mesh.size(run) == size, f"sub-axes {parts} do not fill {sizes}"
        runs.append(tuple(run))
    assert not left, f"sub-axes {left} lie in no level"
    return tuple(runs)
