"""Ops that change an array's shape or order, and ops that make arrays from nothing.

Broadcast, transpose, squeeze, tile and rev; iota, empty and platform_index. `reshape.py`
and `pieces.py` have the others that move elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.program.ir import Literal, Op, Value
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.factors import (
    RuleFactors,
    is_key,
    local_shape,
    with_result_shape,
)
from meshwright.program.rules.registry import Trait, rule
from meshwright.program.rules.rule import FactorRule, OpCut, Shape

_FIRST = (frozenset({0}),)


@rule(
    "broadcast_in_dim",
    traits=(Trait.MOVES, Trait.REPEATS),
)
def broadcast_in_dim(op: Op) -> FactorRule:
    """The rule `a->ba`; a dim that is new or that broadcasts is a factor of the result."""
    params: Any = op.params
    factors = RuleFactors()
    (operand,), (result,) = op.operands, op.results
    dims = factors.each(result.shape)
    places = [int(d) for d in params["broadcast_dimensions"]]
    operand_dims = tuple(
        dims[d] if n == result.shape[d] else ()
        for n, d in zip(operand.shape, places, strict=True)
    )
    return factors.rule(
        [operand_dims],
        [tuple(dims)],
        linear=_FIRST,
        local_params=with_result_shape("shape"),
        is_zero=isinstance(operand, Literal) and bool(operand.value == 0),
    )


@rule("transpose", traits=(Trait.MOVES,))
def transpose(op: Op) -> FactorRule:
    """The rule `ab->ba`."""
    params: Any = op.params
    factors = RuleFactors()
    dims = factors.each(op.operands[0].shape)
    permuted = tuple(dims[int(d)] for d in params["permutation"])
    return factors.rule([tuple(dims)], [permuted], linear=_FIRST)


@rule("squeeze", traits=(Trait.ALIASES_OPERAND,))
def squeeze(op: Op) -> FactorRule:
    """The rule `a-->a`, which drops dims of size 1."""
    params: Any = op.params
    factors = RuleFactors()
    dropped = {int(d) for d in params["dimensions"]}
    dims = factors.each(op.operands[0].shape, dropped)
    kept = tuple(f for d, f in enumerate(dims) if d not in dropped)
    return factors.rule([tuple(dims)], [kept], linear=_FIRST)


@rule("tile", traits=(Trait.MOVES,))
def tile(op: Op) -> FactorRule:
    """The rule `a->(ra)` of r repetitions; r is a factor of the result alone."""
    params: Any = op.params
    factors = RuleFactors()
    operand_dims, made = [], []
    for n, times in zip(op.operands[0].shape, params["reps"], strict=True):
        dim = factors.one(n)
        operand_dims.append(dim)
        made.append(dim if times == 1 else factors.one(int(times)) + dim)
    return factors.rule(
        [tuple(operand_dims)], [tuple(made)], linear=_FIRST, local_params=_local_repeats
    )


def _local_repeats(
    op: Op, operands: tuple[Shape, ...], results: tuple[Shape, ...]
) -> Mapping[str, object]:
    params: Any = op.params
    pairs = zip(params["reps"], operands[0], results[0], strict=True)
    return {**op.params, "reps": tuple(r // n if n else t for t, n, r in pairs)}


@rule("rev", traits=(Trait.MOVES,))
def rev(op: Op) -> FactorRule:
    """The rule `ab->ab`; devices also exchange the parts of a reversed dim."""
    params: Any = op.params
    factors = RuleFactors()
    (operand,) = op.operands
    reversed_dims = {int(d) for d in params["dimensions"]}
    dims = factors.each(operand.shape, reversed_dims if is_key(operand.dtype) else ())
    special = frozenset(f for d in reversed_dims for f in dims[d])
    named = [tuple(dims)]
    return factors.rule(
        named, named, linear=_FIRST, special=special, expand=_swap_parts
    )


def _swap_parts(
    builder: Builder, op: Op, operands: tuple[Value, ...], cut: OpCut
) -> tuple[Value, ...]:
    """Reverse each part, then send part i of n to position n - 1 - i."""
    params: Any = op.params
    (found,) = builder.apply(op, operands, (operands[0].shape,))
    for d in params["dimensions"]:
        # Factor i is dim i, since every dim but those of keys has a factor.
        axes, n = cut.axes[int(d)], cut.parts[int(d)]
        if axes:
            found = builder.permute(
                found, axes, tuple((i, n - 1 - i) for i in range(n))
            )
    return (found,)


@rule("iota", traits=(Trait.REPEATS,))
def iota(op: Op) -> FactorRule:
    """The rule `->ab`; along a split dim each device counts from its own start."""
    params: Any = op.params
    factors = RuleFactors()
    dims = tuple(factors.each(op.results[0].shape))
    return factors.rule(
        [],
        [dims],
        special=frozenset(dims[params["dimension"]]),
        local_params=with_result_shape("shape"),
        expand=_count_on,
    )


def _count_on(
    builder: Builder, op: Op, operands: tuple[Value, ...], cut: OpCut
) -> tuple[Value, ...]:
    """Count in int32, then convert, so that low-precision floats round as on one device."""
    del operands
    params: Any = op.params
    dim, (result,) = params["dimension"], op.results
    dims = tuple((d,) for d in range(len(result.shape)))
    shape = local_shape(result.shape, dims, cut)
    here = builder.axis_index(cut.axes[dim])
    offset = builder.binary("mul", here, shape[dim])
    counted = builder.binary("add", builder.iota(shape, dim), offset)
    return (builder.convert(counted, result.dtype),)


@rule("empty")
def empty(op: Op) -> FactorRule:
    """The rule `->ab` of uninitialized memory."""
    factors = RuleFactors()
    dims = tuple(factors.each(op.results[0].shape))
    return factors.rule([], [dims], local_params=with_result_shape("shape"))


@rule("platform_index")
def platform_index(op: Op) -> FactorRule:
    """The rule `->` of the index of the branch that the platform selects."""
    del op
    return RuleFactors().rule([], [()])
