"""Rewrites collectives and other device ops as JAX primitives that have factor rules.

So a device program can be partitioned once more.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from meshwright.program.capture import aval_of, convert
from meshwright.program.ir import Atom, Literal, Op, Program
from meshwright.run.local.device_ops import function_of

_KEPT = ("send", "tag")


def as_primitives(program: Program) -> Program:
    """The program with JAX primitives in place of ops that have no primitive."""
    if all(op.primitive is not None and not op.bodies for op in program.ops):
        return program
    known: dict[Atom, Atom] = {}
    ops: list[Op] = []
    for op in program.ops:
        operands = tuple(known.get(a, a) for a in op.operands)
        op = replace(op, operands=operands)
        if op.bodies:
            ops.append(replace(op, bodies=tuple(map(as_primitives, op.bodies))))
        elif op.primitive is not None or op.kind in _KEPT:
            ops.append(op)
        else:
            ops += _traced(op, known)
    outputs = tuple(known.get(a, a) for a in program.outputs)
    return replace(program, ops=tuple(ops), outputs=outputs)


def _traced(op: Op, known: dict[Atom, Atom]) -> list[Op]:
    """The JAX ops that compute what an op of a device program computes.

    known: the atom that replaces each atom so far; the op's result is added.
    """
    params = {k: v for k, v in op.params.items() if k != "reason"}
    if op.kind == "iota":
        params["dtype"] = op.results[0].dtype
    arrays = [atom for atom in op.operands if not isinstance(atom, Literal)]

    def run(*given: Any) -> Any:
        values = iter(given)
        operands = [
            jnp.asarray(a.value, a.dtype) if isinstance(a, Literal) else next(values)
            for a in op.operands
        ]
        return function_of(op.kind)(*operands, **params)

    traced = convert(jax.make_jaxpr(run)(*map(aval_of, arrays)))
    inner: dict[Atom, Atom] = dict(zip(traced.inputs, arrays, strict=True))
    ops = [
        replace(
            each,
            operands=tuple(inner.get(a, a) for a in each.operands),
            source=op.source,
        )
        for each in traced.ops
    ]
    (output,) = traced.outputs
    known[op.results[0]] = inner.get(output, output)
    return ops
