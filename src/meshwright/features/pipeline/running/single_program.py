"""A program for all stages, in which each loop over layers becomes a pipeline."""

from dataclasses import replace

from meshwright.errors import StageError
from meshwright.features.pipeline.running.layer_pipeline import LayerLoop
from meshwright.features.pipeline.running.primitives import trace_op
from meshwright.program.ir import Atom, Op, Program, Value


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
        renamed = replace(op, operands=tuple(known.get(a, a) for a in op.operands))
        if op not in body_of:
            ops.append(renamed)
            continue
        loop = LayerLoop.of(renamed, body_of[op], stages, count)
        traced = trace_op(loop, renamed, known)
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
