"""Replacement of a cone by an expression, whose weights become weights of the network."""

from __future__ import annotations

from dataclasses import replace

from meshwright.features.codesign.nas.rewriting.cones import Cone
from meshwright.features.codesign.nas.rewriting.network import (
    ModelProgram,
    Weight,
    renamed,
    tidied,
)
from meshwright.features.codesign.nas.synthesis.expression import (
    Expression,
    step_program,
)
from meshwright.features.codesign.nas.synthesis.pieces import WeightSpec
from meshwright.program.ir import Atom, Op, Program, Value


def replace_cone(
    network: ModelProgram, cone: Cone, expression: Expression
) -> ModelProgram:
    """The network with `expression` of the cone's inputs in the place of the cone.

    Weights that only the cone read are dropped. Law: shapes and dtypes stay, and all ops
    outside of the cone.
    """
    number = len(network.changes)
    ops, weights, output = _written(expression, cone)
    source = f"rewrite {number}: {expression}"
    ops = [replace(op, source=source) for op in ops]
    swapped: dict[Atom, Atom] = {cone.output: output}
    old = network.program
    gone, end = set(cone.ops), _end(network, cone)
    kept = [
        replace(op, operands=renamed(swapped, op.operands))
        if cone.output in op.operands
        else op
        for at, op in enumerate(old.ops)
        if at > end
    ]
    before = [op for at, op in enumerate(old.ops[: end + 1]) if at not in gone]
    constants = dict(old.constants)
    program = Program(
        (*old.inputs[:-1], *(value for value, _ in weights), old.inputs[-1]),
        (*before, *ops, *kept),
        renamed(swapped, old.outputs),
        constants,
    )
    new = tuple(
        Weight(f"rewrite_{number}.{i}.{spec.name}", std=spec.std, mean=spec.mean)
        for i, (_, spec) in enumerate(weights)
    )
    change = f"{len(cone.ops)} ops by {expression}"
    return tidied(
        ModelProgram(program, (*network.weights, *new), (*network.changes, change))
    )


def _end(network: ModelProgram, cone: Cone) -> int:
    """The position of the op that makes the cone's output; -1 for an input."""
    found = (
        at for at, op in enumerate(network.program.ops) if cone.output in op.results
    )
    return next(found, -1)


def _written(
    expression: Expression, cone: Cone
) -> tuple[list[Op], list[tuple[Value, WeightSpec]], Atom]:
    """The ops of an expression on the cone's inputs, its weights, and its output."""
    dtype = cone.output.dtype
    values: list[Atom] = list(cone.inputs)
    specs: dict[int, list[WeightSpec]] = {}
    for number, spec in expression.weights():
        specs.setdefault(number, []).append(spec)
    ops: list[Op] = []
    weights: list[tuple[Value, WeightSpec]] = []
    for number, step in enumerate(expression.steps):
        own = [(Value(s.shape, dtype), s) for s in specs.get(number, [])]
        weights += own
        operands = [values[i] for i in step.operands]
        shapes = tuple(a.shape for a in operands)
        body = step_program(step.piece, shapes)
        added, output = copy_ops(body, [*(value for value, _ in own), *operands])
        ops += added
        values.append(output)
    return ops, weights, values[expression.output]


def copy_ops(body: Program, inputs: list[Atom]) -> tuple[list[Op], Atom]:
    """The ops of a body with fresh values, on other inputs, and its output."""
    swapped: dict[Atom, Atom] = dict(zip(body.inputs, inputs, strict=True))
    ops: list[Op] = []
    for op in body.ops:
        results = tuple(Value(r.shape, r.dtype) for r in op.results)
        ops.append(replace(op, operands=renamed(swapped, op.operands), results=results))
        swapped.update(zip(op.results, results, strict=True))
    return ops, swapped.get(body.outputs[0], body.outputs[0])
