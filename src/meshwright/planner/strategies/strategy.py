"""A strategy: one way to partition a node, which is an op or input of a program."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from meshwright.program.rules.rule import Dims

ALL_REDUCE, KEEP_PARTIAL = -1, -2
"""Ways to reduce a partial result ("ends"), besides reduce-scatter.

ALL_REDUCE: it is all-reduced. KEEP_PARTIAL: readers take it as partial sums. A number
from 0 on is the dim of the result along which it is reduce-scattered.
"""

DimAxes = tuple[tuple[str, ...], ...]
"""For each dim of a value the mesh axes that split it, major to minor."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to partition a node (op or input).

    axes: (factor, mesh axes that split it from major to minor) for each factor that is
        split. A factor is a letter of the op's factor rule.
    partial_inputs: axes along which operands arrive as partial sums.
    reductions: (axis, end) for each axis along which the result is partial. The end is
        `ALL_REDUCE`, `KEEP_PARTIAL`, or the dim along which the result is
        reduce-scattered.
    """

    axes: tuple[tuple[int, tuple[str, ...]], ...] = ()
    partial_inputs: tuple[str, ...] = ()
    reductions: tuple[tuple[str, int], ...] = ()

    def dim_axes(self, dims: Dims) -> DimAxes:
        """Mesh axes that split each dim of a value; dims: factors of the dims."""
        if not self.axes:
            return ((),) * len(dims)
        axes = dict(self.axes)
        return tuple(
            [
                axes.get(fs[0], ())
                if len(fs) == 1  # nearly every dim, and the planner's innermost loop
                else tuple([a for f in fs for a in axes.get(f, ())])
                for fs in dims
            ]
        )

    def result_axes(self, dims: Dims) -> DimAxes:
        """Mesh axes that split each dim of a result after its reduce-scatters.

        dims: factors of the result's dims.
        """
        split = list(self.dim_axes(dims))
        for axis, end in self.reductions:
            if 0 <= end < len(split):
                split[end] = (*split[end], axis)
        return tuple(split)

    @property
    def partial(self) -> frozenset[str]:
        """Mesh axes along which readers take the result as partial sums."""
        return frozenset(axis for axis, end in self.reductions if end == KEEP_PARTIAL)


@dataclass(frozen=True, slots=True)
class StrategySet:
    """All strategies of a node; two sets are equal if their numbers are.

    Nodes with equal ops share a set, so that tables over it are built once. The numbers
    come from one `Strategies` and are not valid elsewhere.
    """

    number: int
    strategies: tuple[Strategy, ...] = field(compare=False)

    def __len__(self) -> int:
        return len(self.strategies)

    def __iter__(self) -> Iterator[Strategy]:
        return iter(self.strategies)

    def __getitem__(self, index: int) -> Strategy:
        return self.strategies[index]
