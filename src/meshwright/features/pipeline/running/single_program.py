"""A program for all stages, in which each loop over layers becomes a pipeline."""

from dataclasses import replace
from typing import Any

import jax

from meshwright.errors import StageError
from meshwright.features.pipeline.running.layer_pipeline import LayerLoop
from meshwright.program.capture import aval_of, convert
from meshwright.program.ir import Atom, Literal, Op, Program, Value


def pipelined_layers(
    program: Program, local: Program, stages: int, count: int
) -> Program:
    """Rewrite a program's loops over layers as pipelines of `stages` stages.

    local: the program of one of `count` microbatches, with the same loops.
    Raises `StageError`, with the reason, if no loop can be a pipeline.
    """
    loops = [op for op in program.ops if op.kind == "scan"]
    bodies = [op for op in local.ops if op.kind == "scan"]
    if not loops or len(loops) != len(bodies):
        raise StageError(
            "the step has no loop over layers (jax.lax.scan over stacked weights), whose "
            "iterations could be equal stages of a single program; leave form='single' away"
        )
    known: dict[Atom, Atom] = {}
    ops: list[Op] = []
    constants = {**program.constants, **local.constants}
    body_of = dict(zip(loops, bodies, strict=True))
    for op in program.ops:
        operands = tuple(known.get(a, a) for a in op.operands)
        op_now = _with(op, operands)
        if op not in body_of:
            ops.append(op_now)
            continue
        loop = LayerLoop.of(op_now, body_of[op], stages, count)
        traced = _traced(loop, op_now, known)
        ops += traced.ops
        constants.update(traced.constants)
    outputs = tuple(known.get(a, a) for a in program.outputs)
    return Program(program.inputs, tuple(ops), outputs, constants)


def stacked_weights(program: Program) -> list[Value]:
    """The inputs of a program that loops over layers read one layer at a time."""
    made = {value: op for op in program.ops for value in op.results}
    found: dict[Value, None] = {}
    for op in program.ops:
        for wire in op.wires if op.kind == "scan" else ():
            if not (wire.is_stacked and wire.inputs and wire.operand is not None):
                continue
            atom = op.operands[wire.operand]
            while atom in made and len(made[atom].operands) == 1:
                (before,) = made[atom].operands
                if before.shape != atom.shape:
                    break
                atom = before
            if atom in program.inputs and isinstance(atom, Value):
                found[atom] = None
    return list(found)


def _traced(loop: LayerLoop, op: Op, known: dict[Atom, Atom]) -> Program:
    """The ops of a pipelined loop, traced by JAX.

    known: atoms that replace those of the program; the loop's results are added.
    """
    arrays = [atom for atom in op.operands if not isinstance(atom, Literal)]

    def run(*given: Any) -> list[Any]:
        values = iter(given)
        return loop(
            *(a.value if isinstance(a, Literal) else next(values) for a in op.operands)
        )

    traced = convert(jax.make_jaxpr(run)(*map(aval_of, arrays)))
    inner: dict[Atom, Atom] = dict(zip(traced.inputs, arrays, strict=True))
    outputs = (inner.get(a, a) for a in traced.outputs)
    known.update(zip(op.results, outputs, strict=True))
    ops = tuple(
        _with(each, tuple(inner.get(a, a) for a in each.operands), op.source)
        for each in traced.ops
    )
    return replace(traced, ops=ops)


def _with(op: Op, operands: tuple[Atom, ...], source: Any = None) -> Op:
    return replace(op, operands=operands, source=source or op.source)
