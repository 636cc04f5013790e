"""Expressions: pieces put together, each with its operands, from inputs to an output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax

from meshwright.features.codesign.nas.properties.properties import (
    Properties,
    properties_of,
)
from meshwright.features.codesign.nas.synthesis.pieces import (
    APPLY,
    Shape,
    SubgraphPiece,
    WeightSpec,
    weights_of,
)
from meshwright.program.capture import convert
from meshwright.program.ir import Program, Value


@dataclass(frozen=True, slots=True)
class Roles:
    """The dims of a value that are examples and channels; all others are space.

    batch, feature: a dim's number.
    """

    batch: int
    feature: int

    def space(self, rank: int) -> tuple[int, ...]:
        """The dims that are neither."""
        return tuple(d for d in range(rank) if d not in (self.batch, self.feature))


@dataclass(frozen=True, slots=True)
class Step:
    """A piece and the numbers of its operands: inputs first, then results of steps."""

    piece: SubgraphPiece
    operands: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Expression:
    """A subgraph as steps in order; `output` is the number of the value that it gives.

    shapes: of the inputs.
    """

    shapes: tuple[Shape, ...]
    steps: tuple[Step, ...]
    output: int

    def value_shapes(self) -> list[Shape]:
        """Shapes of all values, by number."""
        found = list(self.shapes)
        for step in self.steps:
            found.append(
                step_program(step.piece, tuple(found[i] for i in step.operands))
                .outputs[0]
                .shape
            )
        return found

    def weights(self) -> list[tuple[int, WeightSpec]]:
        """The trainable arrays of all steps, each with the number of its step."""
        shapes = self.value_shapes()
        return [
            (number, spec)
            for number, step in enumerate(self.steps)
            for spec in weights_of(step.piece, shapes[step.operands[0]])
        ]

    def __str__(self) -> str:
        names = [f"in{i}" for i in range(len(self.shapes))]
        for step in self.steps:
            operands = ", ".join(names[i] for i in step.operands)
            names.append(f"{step.piece}[{operands}]")
        return names[self.output]


@cache
def step_program(piece: SubgraphPiece, shapes: tuple[Shape, ...]) -> Program:
    """The program of a piece: its weights are the first inputs, then its operands."""
    specs = weights_of(piece, shapes[0])

    def fn(weights: Sequence[Any], operands: Sequence[Any]) -> Any:
        return APPLY[piece.kind](piece, weights, *operands)

    avals = [
        [jax.ShapeDtypeStruct(s, "float32") for s in group]
        for group in ([spec.shape for spec in specs], shapes)
    ]
    return convert(jax.make_jaxpr(fn)(*avals))


@cache
def step_properties(piece: SubgraphPiece, shapes: tuple[Shape, ...]) -> Properties:
    """The properties of a piece with respect to its operands."""
    program = step_program(piece, shapes)
    (output,) = program.outputs
    assert isinstance(output, Value), f"{piece} computes something"
    return properties_of(program, output, program.inputs[-len(shapes) :])
