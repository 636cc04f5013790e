"""Constant folding: ops of known values become constants."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from meshwright.program.ir import Atom, Literal, Op, Program, Value, itemsize_bytes
from meshwright.program.rewrite.dead_code import eliminate_dead_code
from meshwright.run.local.execute import run_program

MOST_BYTES = 1 << 16
"""Most bytes of a folded constant; a larger one would make files larger than the op."""


def fold_constants(program: Program) -> Program:
    """The program whose ops of constants are constants, in loops and branches too.

    A selection by a constant that is the same everywhere becomes the selected value.
    """
    return eliminate_dead_code(_folded(program))


def _folded(program: Program) -> Program:
    env: dict[Atom, Atom] = {}
    constants = dict(program.constants)
    ops: list[Op] = []
    for op in program.ops:
        operands = tuple(env.get(a, a) for a in op.operands)
        bodies = tuple(_folded(body) for body in op.bodies)
        op = replace(op, operands=operands, bodies=bodies)
        branch = _known_index(op, constants) if op.kind == "cond" else None
        chosen = _chosen(op, constants)
        if branch is not None:
            _inline_branch(op, branch, ops, constants, env)
        elif chosen is not None:
            env[op.results[0]] = chosen
        elif op.kind == "platform_index":
            constants[op.results[0]] = np.int32(_branch_of_cpu(op))
        elif _is_foldable(op, constants):
            constants.update(_values(op, constants))
        else:
            ops.append(op)
    outputs = tuple(env.get(a, a) for a in program.outputs)
    return Program(program.inputs, tuple(ops), outputs, constants)


_KEPT = ("random_wrap", "random_bits", "random_unwrap", "random_seed", "random_fold_in")


def _is_foldable(op: Op, constants: dict[Value, Any]) -> bool:
    if op.bodies or op.has_effect or op.kind in _KEPT or "key" in op.results[0].dtype:
        return False
    if not all(isinstance(a, Literal) or a in constants for a in op.operands):
        return False
    if any(a.dtype.startswith("complex") for a in op.results):
        return False
    atoms = (*op.results, *op.operands)
    return all(_bytes(a) <= MOST_BYTES for a in atoms)


def _bytes(atom: Atom) -> float:
    return math.prod(atom.shape) * itemsize_bytes(atom.dtype)


def _values(op: Op, constants: dict[Value, Any]) -> dict[Value, Any]:
    known = {a: constants[a] for a in op.operands if isinstance(a, Value)}
    alone = Program((), (op,), op.results, known)
    with jax.ensure_compile_time_eval():
        found = run_program(alone, [])
    return {v: np.asarray(x) for v, x in zip(op.results, found, strict=True)}


def _branch_of_cpu(op: Op) -> int:
    """The branch of `lax.platform_dependent` for CPUs, with whose results we compare."""
    platforms: Any = op.params["platforms"]
    return next(i for i, p in enumerate(platforms) if p is None or "cpu" in p)


def _known_index(op: Op, constants: dict[Value, Any]) -> int | None:
    """The branch that a conditional takes, if its index is a constant."""
    which = next(w for w in op.wires if not w.inputs and not w.outputs)
    assert which.operand is not None, "a branch index is an operand"
    index = op.operands[which.operand]
    known = index.value if isinstance(index, Literal) else constants.get(index)
    if known is None:
        return None
    return min(max(int(np.asarray(known)), 0), len(op.bodies) - 1)


def _inline_branch(
    op: Op,
    branch: int,
    ops: list[Op],
    constants: dict[Value, Any],
    env: dict[Atom, Atom],
) -> None:
    """Append the ops of one branch of a conditional, which is always taken."""
    body = op.bodies[branch]
    constants.update(body.constants)
    inner: dict[Atom, Atom] = {}
    for wire in op.wires:
        for b, position in wire.inputs:
            if b == branch and wire.operand is not None:
                inner[body.inputs[position]] = op.operands[wire.operand]
    for each in body.ops:
        ops.append(
            replace(each, operands=tuple(inner.get(a, a) for a in each.operands))
        )
    for wire in op.wires:
        if wire.result is not None:
            made = body.outputs[dict(wire.outputs)[branch]]
            env[op.results[wire.result]] = inner.get(made, made)


def _chosen(op: Op, constants: dict[Value, Any]) -> Atom | None:
    """The operand that a `select_n` with a constant selector returns, if it is one."""
    if op.kind != "select_n":
        return None
    which = op.operands[0]
    known = which.value if isinstance(which, Literal) else constants.get(which)
    if known is None:
        return None
    number = np.unique(np.asarray(known).astype(np.int64))
    if number.size != 1:
        return None
    case = op.operands[1 + int(number[0])]
    return case if case.shape == op.results[0].shape else None
