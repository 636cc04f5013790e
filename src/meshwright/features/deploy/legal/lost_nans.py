"""Ops that keep NaN on LiteRT, whose kernels make numbers of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp

from meshwright.features.deploy.legal.floats import extreme_with_nan
from meshwright.features.deploy.legal.rewrite import Rule, Rules, call_op, is_float
from meshwright.program.ir import Atom, Literal, Op, Program, Value

Replacement = Callable[..., Any] | None


def keep_nans(program: Program) -> Rules:
    """Rules by which ops of NaN give NaN.

    The ops of a softmax over the last dim stay: the converter makes one op of them, which
    keeps NaN.
    """
    fused = frozenset(_softmax_values(program))

    def unless_fused(rule: Rule) -> Rule:
        return lambda op: None if op.results[0] in fused else rule(op)

    extreme, unary = unless_fused(extreme_with_nan), unless_fused(_nan_of_nan)
    return {
        "max": _nan_of_either, "min": _nan_of_either,
        **dict.fromkeys(("reduce_max", "reduce_min"), extreme),
        **dict.fromkeys(("exp", "exp2", "cosh"), unary),
    }  # fmt: skip


def _nan_of_nan(op: Op) -> Replacement:
    return lambda x: jnp.where(x != x, x, call_op(op, x))


def _nan_of_either(op: Op) -> Replacement:
    """The kernel returns its second operand if one is NaN; constants are no NaN."""
    if not is_float(op.results[0].dtype) or any(
        isinstance(a, Literal) for a in op.operands
    ):
        return None
    return lambda x, y: jnp.where(x != x, x, call_op(op, x, y))


# -- softmax ---------------------------------------------------------------------------


def _softmax_values(program: Program) -> Iterator[Value]:
    """The largest elements, and the exponentials, of softmaxes over the last dim."""
    makers: dict[Atom, Op] = {v: op for op in program.ops for v in op.results}
    for op in program.ops:
        if op.kind != "div":
            continue
        exp = makers.get(op.operands[0])
        total = _maker(makers, op.operands[1], ("broadcast_in_dim", "reshape"))
        if exp is None or exp.kind != "exp" or total is None:
            continue
        is_sum = total.kind == "reduce_sum" and total.operands[0] in exp.results
        largest = _largest(makers, exp) if is_sum else None
        if largest is not None:
            yield exp.results[0]
            yield largest.results[0]


def _largest(makers: dict[Atom, Op], exp: Op) -> Op | None:
    """The `reduce_max` over the last dim that is subtracted before `exp`."""
    gap = makers.get(exp.operands[0])
    if gap is None or gap.kind != "sub":
        return None
    around = ("broadcast_in_dim", "reshape", "stop_gradient", "max")
    found = _maker(makers, gap.operands[1], around)
    if found is None or found.kind != "reduce_max":
        return None
    axes: Any = found.params["axes"]
    is_last = tuple(map(int, axes)) == (len(found.operands[0].shape) - 1,)
    return found if is_last and found.operands[0] == gap.operands[0] else None


def _maker(makers: dict[Atom, Op], atom: Atom, around: tuple[str, ...]) -> Op | None:
    """The op that computes an atom, before ops of kinds that `around` lists."""
    op = makers.get(atom)
    while op is not None and op.kind in around:
        op = makers.get(op.operands[-1])
    return op
