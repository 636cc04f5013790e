"""The pieces that can be applied to a value on the way to a wanted shape."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from meshwright.features.codesign.nas.synthesis.expression import Roles
from meshwright.features.codesign.nas.synthesis.pieces import (
    ACTIVATIONS,
    Shape,
    SubgraphPiece,
)


@dataclass(frozen=True, slots=True)
class Typed:
    """The shape of a value, and the roles of its dims."""

    shape: Shape
    roles: Roles

    @property
    def space(self) -> tuple[int, ...]:
        """The dims that are neither examples nor channels."""
        return self.roles.space(len(self.shape))


def unary_pieces(value: Typed, wanted: Typed) -> Iterator[SubgraphPiece]:
    """All pieces with one operand that can be applied to `value`.

    wanted: what the subgraph has to give in the end; sizes and strides lead there.
    """
    yield from map(SubgraphPiece, ACTIVATIONS)
    yield from _norms(value)
    yield from _dense(value, wanted)
    yield from _windows(value, wanted)
    yield from _resized(value, wanted)
    yield from _among_positions(value)


def _norms(value: Typed) -> Iterator[SubgraphPiece]:
    feature, batch = value.roles.feature, value.roles.batch
    yield SubgraphPiece("layer_norm", feature, batch=batch)
    yield SubgraphPiece("batch_norm", feature, batch=batch)


def _sizes(value: Typed, wanted: Typed) -> list[int]:
    """Numbers of channels to choose from, the wanted number among them.

    None is below a quarter of the wanted number, unless the value itself has fewer. So
    several pieces in a row do not leave one channel through which all has to pass.
    """
    own = value.shape[value.roles.feature]
    goal = wanted.shape[wanted.roles.feature]
    least = max(1, min(own, goal // 4))
    return sorted(n for n in {own, own // 2, own // 4, 2 * own, goal} if n >= least)


def _dense(value: Typed, wanted: Typed) -> Iterator[SubgraphPiece]:
    feature, batch = value.roles.feature, value.roles.batch
    for size in _sizes(value, wanted):
        yield SubgraphPiece("dense", feature, batch=batch, size=size)
    for dim in value.space:  # mixes positions, as an MLP mixer does
        if value.shape[dim] > 1:
            yield SubgraphPiece("dense", dim, batch=batch, size=value.shape[dim])


def _stride(value: Typed, wanted: Typed) -> int:
    """The common factor by which the space of `value` has to shrink; 1 if there is none."""
    if len(value.shape) != len(wanted.shape) or not value.space:
        return 1
    pairs = [
        (value.shape[a], wanted.shape[b])
        for a, b in zip(value.space, wanted.space, strict=True)
    ]
    ratios = {-(-n // m) for n, m in pairs if m}
    ratio = ratios.pop() if len(ratios) == 1 else 1
    return ratio if all(-(-n // ratio) == m for n, m in pairs) else 1


def _windows(value: Typed, wanted: Typed) -> Iterator[SubgraphPiece]:
    space, feature, batch = value.space, value.roles.feature, value.roles.batch
    widest = max((value.shape[d] for d in space), default=1)
    if not 1 <= len(space) <= 3 or widest < 2:
        return
    own = value.shape[feature]
    for stride in sorted({1, _stride(value, wanted)}):
        for window in (3, 5):
            yield SubgraphPiece("conv", feature, space, batch, own, window, stride, own)
        for size in _sizes(value, wanted):
            for groups in (1, 2, 4):
                if size % groups == own % groups == 0 and own > groups:
                    yield SubgraphPiece(
                        "conv", feature, space, batch, size, 3, stride, groups
                    )
        window = max(stride, 3 if stride == 1 else 2)
        for kind in ("average_pool", "max_pool"):
            yield SubgraphPiece(kind, feature, space, batch, 0, window, stride)


def _resized(value: Typed, wanted: Typed) -> Iterator[SubgraphPiece]:
    """Pieces that add or drop dims, or repeat positions, towards the wanted shape."""
    rank, goal = len(value.shape), len(wanted.shape)
    if rank > goal:
        for dim in value.space:
            yield SubgraphPiece("mean", space=(dim,))
        yield SubgraphPiece("mean", space=value.space[: rank - goal])
    if rank < goal:
        for dim in wanted.space:
            if dim <= rank:
                yield SubgraphPiece("repeat", dim, size=wanted.shape[dim])
    if rank == goal and value.space:
        ratio = _stride(wanted, value)
        if ratio > 1:
            yield SubgraphPiece("upsample", space=value.space, stride=ratio)


def _among_positions(value: Typed) -> Iterator[SubgraphPiece]:
    """Pieces in which all positions of the space take part."""
    space, feature, batch = value.space, value.roles.feature, value.roles.batch
    if math.prod(value.shape[d] for d in space) < 2:
        return
    own = value.shape[feature]
    yield SubgraphPiece("gate", feature, space, batch, max(own // 4, 1))
    for size in {own, own // 2} - {0}:
        for heads in (1, 4):
            if size % heads == 0:
                yield SubgraphPiece(
                    "attention", feature, space, batch, size, groups=heads
                )


def result_of(piece: SubgraphPiece, value: Typed, shape: Shape) -> Typed:
    """The result of a piece on `value`, which has this shape.

    Where dims are dropped or made, those of examples and of channels move.
    """

    def moved(dim: int) -> int:
        if piece.kind == "mean":
            return dim - sum(d < dim for d in piece.space)
        if piece.kind == "repeat":
            return dim + (dim >= piece.feature)
        return dim

    return Typed(shape, Roles(moved(value.roles.batch), moved(value.roles.feature)))
