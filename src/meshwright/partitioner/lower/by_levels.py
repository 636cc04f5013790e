"""All-reduces written level by level, for axes that span slow and fast links:

a reduce-scatter inside each node, an all-reduce across nodes, and an all-gather inside
each node (a reduction program of P2, see `features/collectives`).
"""

from collections.abc import Callable, Sequence

from meshwright.partitioner.propagate.state import AxisLevels
from meshwright.program.ir import Atom, num_bytes
from meshwright.program.ops import Builder

type Write = Callable[[tuple[str, ...], Callable[[], Atom]], Atom]
"""A function of (axes, write): calls `write`, which adds a collective."""


def all_reduce_by_levels(
    builder: Builder,
    x: Atom,
    axes: tuple[str, ...],
    levels: Sequence[AxisLevels],
    write: Write,
) -> Atom:
    """The sum of `x` over axes; one all-reduce if small or no dim is divisible."""
    inner = _innermost(x, axes, levels)
    dim = None if inner is None else _dim(x, builder.mesh.size(inner))
    if inner is None or dim is None:
        return write(axes, lambda: builder.all_reduce(x, axes))
    outer = tuple(axis for axis in axes if axis not in inner)
    part = write(inner, lambda: builder.reduce_scatter(x, dim, inner))
    total = all_reduce_by_levels(builder, part, outer, levels, write)
    return write(inner, lambda: builder.all_gather(total, dim, inner))


def _innermost(
    x: Atom, axes: tuple[str, ...], levels: Sequence[AxisLevels]
) -> tuple[str, ...] | None:
    """The innermost levels of those axes that have two or more levels among `axes`."""
    inner: list[str] = []
    for each in levels:
        runs = [run for run in each.runs if set(run) <= set(axes)]
        if len(runs) > 1 and num_bytes(x) >= each.least_bytes:
            inner += runs[-1]
    return tuple(axis for axis in axes if axis in inner) or None


def _dim(x: Atom, parts: int) -> int | None:
    """The first dim whose size is a multiple of `parts`; `None` if there is none."""
    dims = (dim for dim, size in enumerate(x.shape) if size % parts == 0 and size)
    return next(dims, None)
