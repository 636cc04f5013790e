"""The two basic tactics: `shard` and `replicate` for inputs or tagged values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from meshwright.errors import TacticError
from meshwright.partitioner.propagate import Node
from meshwright.partitioner.structure.workspace import (
    Workspace,
    find_nodes,
    require_patterns,
)
from meshwright.partitioner.tactics.tactic import TacticKind, as_code
from meshwright.program.ir import Value


class Choice(Enum):
    """Special values that a user may give in place of the number of a dim."""

    REPLICATED = "replicated"  # no tactic may cut it along the axis
    FIRST_DIVISIBLE = "first divisible"  # the first dim that the axis divides


REPLICATED = Choice.REPLICATED
FIRST_DIVISIBLE = Choice.FIRST_DIVISIBLE

Dim = int | Choice | None
DimOf = Callable[[str, Value], Dim]
"""A function from (path, value with shape and dtype) to the dim to shard, or `None`."""


@dataclass(frozen=True, repr=False)
class Shard:
    """Shard inputs or tagged values along one axis, then propagate.

    before: f32[8, 6], unsharded     after `{"x": 0}`: f32[8, 6], dim 0 along the axis
    """

    dims: tuple[tuple[str, Dim | DimOf], ...]
    axis: str
    name: str = ""
    kind = TacticKind.PIN
    rewrite = None

    @property
    def axes(self) -> tuple[str, ...]:
        return (self.axis,)

    def apply(self, work: Workspace) -> None:
        """Shard all leaves that match the patterns together, then propagate."""
        seeds: list[tuple[str, Node, int]] = []
        for pattern, dim in self.dims:
            for path, node in find_nodes(work, pattern):
                seed = self._seed(work, path, node, dim)
                if seed is not None:
                    seeds.append((path, node, seed))
        work.cut(seeds, self.axis, str(self))

    def _seed(
        self, work: Workspace, path: str, node: Node, dim: Dim | DimOf
    ) -> int | None:
        """The dim of one leaf to shard, or `None` if it is not to be sharded."""
        value = work.value(node)
        if callable(dim):
            dim = dim(path, value)
        if dim is None:
            return None
        if dim is REPLICATED:
            work.block([(path, node)], [self.axis])
            return None
        if dim is FIRST_DIVISIBLE:
            return next(iter(work.divisible_dims(node, self.axis)), None)
        return _checked(dim, path, value)

    def __str__(self) -> str:
        if self.name:
            return self.name
        dims = ", ".join(f"{p!r}: {show_dim(d)}" for p, d in self.dims)
        return f"shard({{{dims}}}, axis={self.axis!r})"

    def __repr__(self) -> str:
        return as_code(replace(self, name=""))


@dataclass(frozen=True, repr=False)
class Replicate:
    """Forbid to shard some inputs or tagged values along axes (all if `None`)."""

    patterns: tuple[str, ...]
    axes: tuple[str, ...] | None = None
    kind = TacticKind.PIN
    rewrite = None

    def apply(self, work: Workspace) -> None:
        """Forbid sharding of every leaf that matches the patterns."""
        axes = work.mesh.axes if self.axes is None else self.axes
        for pattern in self.patterns:
            work.block(find_nodes(work, pattern), axes)

    def __str__(self) -> str:
        patterns = ", ".join(map(repr, self.patterns))
        axes = self.axes[0] if self.axes and len(self.axes) == 1 else self.axes
        axis = "" if axes is None else f", axis={axes!r}"
        return f"replicate({patterns}{axis})"

    def __repr__(self) -> str:
        return as_code(self)


def shard(dims: Mapping[str, Dim | DimOf] | DimOf, axis: str) -> Shard:
    """Shard inputs along a mesh axis: `shard({"batch.*": 0}, axis="data")`.

    dims: from patterns to dims. A pattern is a glob over the leaf's dotted path, which
        starts with the function's parameter name (`*` is one component, `**` any
        number), or `tag:name`. A dim is a number (negative counts from the back),
        `REPLICATED`, `FIRST_DIVISIBLE`, None, or a function of (path, value). A
        function in place of the mapping is called for every leaf.
    When the tactic is applied, it raises `TacticError` for a pattern that matches
    nothing or a dim out of range, and `MeshError` for an axis that is not in the mesh.
    """
    if callable(dims):
        return Shard((("**", dims),), axis)
    if not isinstance(dims, Mapping):
        raise TacticError(f"shard wants a mapping from patterns to dims, got {dims!r}")
    require_patterns("shard", dims)
    for pattern, dim in dims.items():
        _check_dim(pattern, dim)
    return Shard(tuple(dims.items()), axis)


def replicate(*patterns: str, axis: str | tuple[str, ...] | None = None) -> Replicate:
    """Replicate inputs along one axis, several, or all: `replicate("state.params.**")`.

    Later tactics and propagation cannot shard them along these axes.
    """
    if not patterns:
        raise TacticError("replicate wants at least one pattern")
    require_patterns("replicate", patterns)
    if axis is None:
        return Replicate(patterns)
    return Replicate(
        patterns, tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    )


def _checked(dim: object, path: str, value: Value) -> int:
    rank = len(value.shape)
    if not isinstance(dim, int) or not -rank <= dim < rank:
        raise TacticError(
            f"dim {dim!r} is out of range for {path}, which is {value} with {rank} dims"
        )
    return dim % rank


def _check_dim(pattern: str, dim: object) -> None:
    if isinstance(dim, bool) or not (
        dim is None or isinstance(dim, int | Choice) or callable(dim)
    ):
        raise TacticError(
            f"dim of {pattern!r} is {dim!r}; wanted an int, REPLICATED, "
            "FIRST_DIVISIBLE, None or a function of (path, value)"
        )


def show_dim(dim: object) -> str:
    """The text of a dim as a user types it, without the package's name."""
    return dim.name if isinstance(dim, Choice) else getattr(dim, "__name__", repr(dim))
