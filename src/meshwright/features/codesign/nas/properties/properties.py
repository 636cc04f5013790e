"""The properties of a subgraph, and how far a candidate is from having them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.features.codesign.nas.properties import depth as depths
from meshwright.features.codesign.nas.properties import mixing as mixings
from meshwright.features.codesign.nas.properties.depth import Depth, depth_of
from meshwright.features.codesign.nas.properties.mixing import Mixing, mixing_of
from meshwright.program.ir import Program, Value


@dataclass(frozen=True, slots=True)
class Properties:
    """What a value is in terms of some inputs.

    shape: of the value.
    mixing, depth: with respect to each input; `None` without dependence.
    """

    shape: tuple[int, ...]
    mixing: tuple[Mixing | None, ...]
    depth: tuple[Depth | None, ...]


@dataclass(frozen=True, slots=True)
class PropertyTarget:
    """What a subgraph that is to be synthesised must have.

    shape: of its output.
    mixing: with respect to each input, the least classes; `None` requires nothing.
    depth: with respect to each input, the least number of runs.
    """

    shape: tuple[int, ...]
    mixing: tuple[Mixing | None, ...]
    depth: tuple[int, ...]


def properties_of(
    program: Program, output: Value, inputs: Sequence[Value]
) -> Properties:
    """The properties of `output` with respect to `inputs`, by inference over the ops."""
    return Properties(
        output.shape,
        tuple(mixing_of(program, output, inputs)),
        tuple(depth_of(program, output, inputs)),
    )


def input_properties(shapes: Sequence[tuple[int, ...]], which: int) -> Properties:
    """The properties of an input itself with respect to all inputs of these shapes."""
    own = mixings.identity(shapes[which])
    return Properties(
        shapes[which],
        tuple(own if i == which else None for i in range(len(shapes))),
        tuple(depths.EMPTY if i == which else None for i in range(len(shapes))),
    )


def compose(operands: Sequence[Properties], op: Properties) -> Properties:
    """The properties of an op's result, from those of its operands and its own.

    Paths in sequence are composed, parallel paths are joined.
    """
    num = len(operands[0].mixing)
    mixing: list[Mixing | None] = [None] * num
    depth: list[Depth | None] = [None] * num
    for operand, own_mixing, own_depth in zip(
        operands, op.mixing, op.depth, strict=True
    ):
        for i in range(num):
            before, runs = operand.mixing[i], operand.depth[i]
            if before is not None and own_mixing is not None:
                mixing[i] = mixings.join(mixing[i], mixings.compose(before, own_mixing))
            if runs is not None and own_depth is not None:
                depth[i] = depths.join(depth[i], depths.compose(runs, own_depth))
    return Properties(op.shape, tuple(mixing), tuple(depth))


def target_of(found: Properties) -> PropertyTarget:
    """The target that asks for all that a subgraph has."""
    runs = tuple(0 if d is None else d.most for d in found.depth)
    return PropertyTarget(found.shape, found.mixing, runs)


def distance(wanted: PropertyTarget, found: Properties) -> float:
    """How much of the target is missing: 0 if nothing is, otherwise up to 3.

    The shares of missing mixing and of missing depth, each the mean over the inputs, and
    the share of dims with another extent. Only what is missing counts.
    """
    num = max(len(wanted.mixing), 1)
    mixing = sum(map(mixings.missing_mixing, *_same_rank(wanted, found))) / num
    depth = sum(map(depths.missing_depth, wanted.depth, found.depth)) / num
    return mixing + depth + _missing_shape(wanted.shape, found.shape)


def _same_rank(
    wanted: PropertyTarget, found: Properties
) -> tuple[Sequence[Mixing | None], Sequence[Mixing | None]]:
    """Both mixings, where a result of another rank has none of what is wanted."""
    if len(wanted.shape) == len(found.shape):
        return wanted.mixing, found.mixing
    return wanted.mixing, [None] * len(wanted.mixing)


def _missing_shape(wanted: tuple[int, ...], found: tuple[int, ...]) -> float:
    if len(wanted) != len(found):
        return 1.0
    differ = sum(a != b for a, b in zip(wanted, found, strict=True))
    return differ / max(len(wanted), 1)
