"""Differentiation of functions with `jax.custom_vjp`.

The user defines two functions: a forward function, which returns results and residuals,
and a backward function from cotangents to cotangents. So the derivative is a linear map
whose forward form is unknown: only its transposition is given. An op with the kind
`custom_vjp` stands for that map. Transposing the op yields the user's backward
function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

import jax
import numpy as np

from meshwright.features.autodiff.op_rules import (
    OpRule,
    function_at,
    is_differentiable,
    value_positions,
)
from meshwright.features.autodiff.region_links import fresh
from meshwright.features.autodiff.typing import CUSTOM_REVERSE, REVERSE_ONLY
from meshwright.program.capture import aval_of, convert
from meshwright.program.ir import Atom, Op, Program


def custom_vjp_rule(op: Op, active: tuple[int, ...]) -> OpRule:
    """Forward mode of a call of a `jax.custom_vjp` function, as a program.

    The program runs the user's forward function, and then an op `custom_vjp` on the
    residuals and the tangents. The user's backward function is a program in that op's
    parameter "reverse".

    active: positions of the operands that have tangents.
    """
    values = value_positions(op)
    trees: list[Any] = []

    def forward(*primals: Any) -> list[Any]:
        operands = dict(zip(values, primals, strict=True))
        fn = function_at(op, active, operands)
        results, reverse = jax.vjp(fn, *(operands[i] for i in active))
        leaves, tree = jax.tree.flatten(reverse)
        trees[:] = [tree]
        return [*results, *leaves]

    first = convert(jax.make_jaxpr(forward)(*(aval_of(op.operands[i]) for i in values)))
    saved = first.outputs[len(op.results) :]
    second = _reverse_program(op, saved, trees[0])
    present = tuple(is_differentiable(r.dtype) for r in op.results)
    tangents = [fresh(op.operands[i]) for i in active]
    dots = tuple(map(fresh, compress(op.results, present)))
    params = {"saved": len(saved), "reverse": second}
    derivative = Op(REVERSE_ONLY, (*saved, *tangents), dots, params, (), op.source)
    program = Program(
        (*first.inputs, *tangents),
        (*first.ops, derivative),
        (*first.outputs[: len(op.results)], *dots),
        first.constants,
    )
    return OpRule(program, present)


def _reverse_program(op: Op, saved: Sequence[Atom], tree: Any) -> Program:
    """The user's backward function as a program of residuals, then cotangents.

    tree: the `jax.vjp` function as a pytree, whose leaves are the residuals `saved`.
    """

    def backward(leaves: Sequence[Any], cotangents: Sequence[Any]) -> Any:
        zeros = iter(cotangents)
        full = [
            next(zeros)
            if is_differentiable(r.dtype)
            else np.zeros(r.shape, jax.dtypes.float0)
            for r in op.results
        ]
        return jax.tree.unflatten(tree, leaves)(full)

    floats = [r for r in op.results if is_differentiable(r.dtype)]
    return convert(
        jax.make_jaxpr(backward)(
            [aval_of(a) for a in saved], [aval_of(r) for r in floats]
        )
    )


def transposed_custom_vjp(op: Op) -> Op:
    """A `custom_vjp` op transposed to `custom_vjp_transpose`, or the other way."""
    saved = int(str(op.params["saved"]))
    kind = CUSTOM_REVERSE if op.kind == REVERSE_ONLY else REVERSE_ONLY
    cotangents = tuple(map(fresh, op.results))
    results = tuple(map(fresh, op.operands[saved:]))
    operands = (*op.operands[:saved], *cotangents)
    return replace(op, kind=kind, operands=operands, results=results)
