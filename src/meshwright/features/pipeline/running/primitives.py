"""Rewrites collectives and other device ops as JAX primitives that have factor rules.

So a device program can be partitioned once more.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from meshwright.program.capture import aval_of, convert
from meshwright.program.ir import Atom, Literal, Op, Program
from meshwright.run.local.device_ops import function_of

_KEPT = ("send", "tag", "total")


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
            params: dict[str, Any] = {**op.params}
            params.pop("reason", None)
            if op.kind == "iota":
                params["dtype"] = op.results[0].dtype
            ops += trace_op(partial(function_of(op.kind), **params), op, known).ops
    outputs = tuple(known.get(a, a) for a in program.outputs)
    return replace(program, ops=tuple(ops), outputs=outputs)


def trace_op(fn: Callable[..., Any], op: Op, known: dict[Atom, Atom]) -> Program:
    """The JAX ops that compute an op's results by a function of its operands.

    known: the atom that replaces each atom so far; the op's results are added.
    """
    arrays = [atom for atom in op.operands if not isinstance(atom, Literal)]

    def run(*given: Any) -> Any:
        values = iter(given)
        operands = [
            jnp.asarray(a.value, a.dtype) if isinstance(a, Literal) else next(values)
            for a in op.operands
        ]
        return fn(*operands)

    traced = convert(jax.make_jaxpr(run)(*map(aval_of, arrays)))
    inner: dict[Atom, Atom] = dict(zip(traced.inputs, arrays, strict=True))
    outputs = (inner.get(a, a) for a in traced.outputs)
    known.update(zip(op.results, outputs, strict=True))
    ops = tuple(
        replace(
            each,
            operands=tuple(inner.get(a, a) for a in each.operands),
            source=op.source or each.source,
        )
        for each in traced.ops
    )
    return replace(traced, ops=ops)
