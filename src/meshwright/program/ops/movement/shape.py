"""Primitives that move elements about: broadcast, transpose, slice, pad, concatenate.

A dim that arrives whole in the result carries a letter; one of which a part is taken,
or that is put together from several operands, carries none. `reshape` and the slices
at run-time positions have files of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshwright.program.ir import Literal, Op, Value
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.factors import (
    Factor,
    RuleFactors,
    all_operands,
    is_key,
    local_shape,
    with_result_shape,
)
from meshwright.program.rules.registry import rule
from meshwright.program.rules.rule import FactorRule, OpCut, Shape
from meshwright.program.rules.traits import Trait

_FIRST = (frozenset({0}),)


@rule(
    "broadcast_in_dim",
    traits=(
        Trait.MOVES,
        Trait.REPEATS,
    ),
)
def broadcast_in_dim(op: Op) -> FactorRule:
    """`a->ba`: new dims are letters of the result; so is a dim of size 1 stretched."""
    params: Any = op.params
    factors = RuleFactors()
    (operand,), (result,) = op.operands, op.results
    dims = factors.each(result.shape)
    places = [int(d) for d in params["broadcast_dimensions"]]
    taken = tuple(
        dims[d] if n == result.shape[d] else ()
        for n, d in zip(operand.shape, places, strict=True)
    )
    return factors.rule(
        [taken],
        [tuple(dims)],
        linear=_FIRST,
        local_params=with_result_shape("shape"),
        is_zero=isinstance(operand, Literal) and bool(operand.value == 0),
    )


@rule("transpose", traits=(Trait.MOVES,))
def transpose(op: Op) -> FactorRule:
    """`ab->ba`."""
    params: Any = op.params
    factors = RuleFactors()
    dims = factors.each(op.operands[0].shape)
    turned = tuple(dims[int(d)] for d in params["permutation"])
    return factors.rule([tuple(dims)], [turned], linear=_FIRST)


@rule("squeeze", traits=(Trait.ALIASES_OPERAND,))
def squeeze(op: Op) -> FactorRule:
    """`a-->a`: dims of size 1 fall away."""
    params: Any = op.params
    factors = RuleFactors()
    dropped = {int(d) for d in params["dimensions"]}
    shape = op.operands[0].shape
    dims = [() if d in dropped else factors.one(n) for d, n in enumerate(shape)]
    kept = tuple(f for d, f in enumerate(dims) if d not in dropped)
    return factors.rule([tuple(dims)], [kept], linear=_FIRST)


@rule(
    "slice",
    traits=(
        Trait.MOVES,
        Trait.SLICES,
    ),
)
def slice_(op: Op) -> FactorRule:
    """`ab->a-`: dims taken whole have a letter."""
    params: Any = op.params
    shape = op.operands[0].shape
    strides = params["strides"] or (1,) * len(shape)
    taken = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    whole = [t == (0, n, 1) for t, n in zip(taken, shape, strict=True)]
    factors = RuleFactors()
    dims = tuple(factors.one(n) if w else () for n, w in zip(shape, whole, strict=True))
    return factors.rule([dims], [dims], linear=_FIRST, local_params=_local_limits)


def _local_limits(
    op: Op, operands: tuple[Shape, ...], results: tuple[Shape, ...]
) -> Mapping[str, object]:
    """A dim taken whole ends where it ends on the device; all others are uncut."""
    del results
    params: Any = op.params
    limits = zip(
        params["limit_indices"], op.operands[0].shape, operands[0], strict=True
    )
    local = tuple(here if here != n else limit for limit, n, here in limits)
    return {**op.params, "limit_indices": local}


@rule("pad", traits=(Trait.MOVES,))
def pad(op: Op) -> FactorRule:
    """`ab,->a-`: dims without padding have a letter; zeros pad partial sums rightly."""
    params: Any = op.params
    operand, value = op.operands
    factors = RuleFactors()
    config = [tuple(int(n) for n in c) for c in params["padding_config"]]
    plain = [c == (0, 0, 0) for c in config]
    dims = tuple(
        factors.one(n) if p else () for n, p in zip(operand.shape, plain, strict=True)
    )
    is_zero = isinstance(value, Literal) and bool(value.value == 0)
    linear = _FIRST if is_zero or all(plain) else all_operands(op)
    return factors.rule([dims, ()], [dims], linear=linear)


@rule(
    "concatenate",
    traits=(
        Trait.MOVES,
        Trait.JOINS,
    ),
)
def concatenate(op: Op) -> FactorRule:
    """`a-,a-->a-`: the dim along which operands stand side by side has no letter."""
    params: Any = op.params
    return _joined(op, int(params["dimension"]))


def _joined(op: Op, dim: int) -> FactorRule:
    factors = RuleFactors()
    shape = op.results[0].shape
    is_alone = len(op.operands) == 1
    dims = tuple(
        factors.one(n) if d != dim or is_alone else () for d, n in enumerate(shape)
    )
    return factors.rule([dims] * len(op.operands), [dims], linear=all_operands(op))


@rule(
    "split",
    traits=(
        Trait.MOVES,
        Trait.SLICES,
    ),
)
def split(op: Op) -> FactorRule:
    """`a-->a-,a-`: the inverse of `concatenate`."""
    params: Any = op.params
    factors = RuleFactors()
    shape, is_alone = op.operands[0].shape, len(op.results) == 1
    dims = tuple(
        factors.one(n) if d != int(params["axis"]) or is_alone else ()
        for d, n in enumerate(shape)
    )
    return factors.rule(
        [dims], [dims] * len(op.results), linear=_FIRST, local_params=_local_sizes
    )


def _local_sizes(
    op: Op, operands: tuple[Shape, ...], results: tuple[Shape, ...]
) -> Mapping[str, object]:
    del operands
    params: Any = op.params
    return {**op.params, "sizes": tuple(r[params["axis"]] for r in results)}


@rule(
    "stack",
    traits=(
        Trait.MOVES,
        Trait.JOINS,
    ),
)
def stack(op: Op) -> FactorRule:
    """`a,a->-a`: operands lie along a new dim, which has no letter."""
    factors = RuleFactors()
    dims = factors.each(op.operands[0].shape)
    return factors.rule(
        [tuple(dims)] * len(op.operands),
        [_with_hole(op, dims)],
        linear=all_operands(op),
    )


@rule("unstack", traits=(Trait.MOVES,))
def unstack(op: Op) -> FactorRule:
    """`-a->a,a`: the inverse of `stack`."""
    params: Any = op.params
    factors = RuleFactors()
    shape = list(op.operands[0].shape)
    del shape[params["axis"]]
    dims = factors.each(tuple(shape))
    results = [tuple(dims)] * len(op.results)
    return factors.rule([_with_hole(op, dims)], results, linear=_FIRST)


def _with_hole(op: Op, dims: Sequence[Factor]) -> tuple[Factor, ...]:
    params: Any = op.params
    axis = int(params["axis"]) % (len(dims) + 1)
    return (*dims[:axis], (), *dims[axis:])


@rule("tile", traits=(Trait.MOVES,))
def tile(op: Op) -> FactorRule:
    """`a->(ra)`: repeated r times; r is a letter of the result alone."""
    params: Any = op.params
    factors = RuleFactors()
    taken, made = [], []
    for n, times in zip(op.operands[0].shape, params["reps"], strict=True):
        dim = factors.one(n)
        taken.append(dim)
        made.append(dim if times == 1 else factors.one(int(times)) + dim)
    return factors.rule(
        [tuple(taken)], [tuple(made)], linear=_FIRST, local_params=_local_repeats
    )


def _local_repeats(
    op: Op, operands: tuple[Shape, ...], results: tuple[Shape, ...]
) -> Mapping[str, object]:
    params: Any = op.params
    pairs = zip(params["reps"], operands[0], results[0], strict=True)
    return {**op.params, "reps": tuple(r // n if n else t for t, n, r in pairs)}


@rule("rev", traits=(Trait.MOVES,))
def rev(op: Op) -> FactorRule:
    """`ab->ab`; parts of a reversed dim also change places among the devices."""
    params: Any = op.params
    factors = RuleFactors()
    (operand,) = op.operands
    turned = {int(d) for d in params["dimensions"]}
    dims = tuple(
        () if d in turned and is_key(operand.dtype) else factors.one(n)
        for d, n in enumerate(operand.shape)
    )
    special = frozenset(f for d in turned for f in dims[d])
    return factors.rule(
        [dims], [dims], linear=_FIRST, special=special, expand=_swap_parts
    )


def _swap_parts(
    builder: Builder, op: Op, operands: tuple[Value, ...], cut: OpCut
) -> tuple[Value, ...]:
    """Reverse each part, then send part i of n to place n - 1 - i."""
    params: Any = op.params
    (found,) = builder.apply(op, operands, (operands[0].shape,))
    for d in params["dimensions"]:
        # Without keys every dim has one factor, numbered like the dim.
        axes, n = cut.axes[int(d)], cut.parts[int(d)]
        if axes:
            found = builder.permute(
                found, axes, tuple((i, n - 1 - i) for i in range(n))
            )
    return (found,)


@rule("iota", traits=(Trait.REPEATS,))
def iota(op: Op) -> FactorRule:
    """`->ab`: counted from this device's position on a cut dim."""
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
    """Integers of 32 bits first, so that narrow floats round what one device rounds."""
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
    """`->ab`: memory that nothing has been written to."""
    factors = RuleFactors()
    dims = tuple(factors.each(op.results[0].shape))
    return factors.rule([], [dims], local_params=with_result_shape("shape"))


@rule("platform_index")
def platform_index(op: Op) -> FactorRule:
    """`->`: which branch of a choice by platform runs."""
    del op
    return RuleFactors().rule([], [()])
