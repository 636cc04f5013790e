"""Ops that take arrays apart and join them: slice, pad, concatenate, split, stack, unstack.

A dim that the result has whole is a factor. A dim of which a part is taken, or that joins
several operands, has none. Slices at run-time positions are in `dynamic.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshwright.program.ir import Literal, Op
from meshwright.program.rules.factors import Factor, RuleFactors, all_operands
from meshwright.program.rules.registry import Trait, rule
from meshwright.program.rules.rule import FactorRule, Shape

_FIRST = (frozenset({0}),)


@rule("slice", traits=(Trait.MOVES, Trait.SLICES))
def slice_(op: Op) -> FactorRule:
    """The rule `ab->a-`: dims that are taken whole are factors."""
    params: Any = op.params
    shape = op.operands[0].shape
    strides = params["strides"] or (1,) * len(shape)
    taken = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    whole = [t == (0, n, 1) for t, n in zip(taken, shape, strict=True)]
    factors = RuleFactors()
    dims = tuple(factors.each(shape, [d for d, w in enumerate(whole) if not w]))
    return factors.rule([dims], [dims], linear=_FIRST, local_params=_local_limits)


def _local_limits(
    op: Op, operands: tuple[Shape, ...], results: tuple[Shape, ...]
) -> Mapping[str, object]:
    """Parameters with the local extent as the limit of each dim that is taken whole."""
    del results
    params: Any = op.params
    limits = zip(
        params["limit_indices"], op.operands[0].shape, operands[0], strict=True
    )
    local = tuple(here if here != n else limit for limit, n, here in limits)
    return {**op.params, "limit_indices": local}


@rule("pad", traits=(Trait.MOVES,))
def pad(op: Op) -> FactorRule:
    """The rule `ab,->a-`: dims without padding are factors; linear if it pads by 0."""
    params: Any = op.params
    operand, value = op.operands
    factors = RuleFactors()
    config = [tuple(int(n) for n in c) for c in params["padding_config"]]
    padded = [d for d, c in enumerate(config) if c != (0, 0, 0)]
    dims = tuple(factors.each(operand.shape, padded))
    is_zero = isinstance(value, Literal) and bool(value.value == 0)
    linear = _FIRST if is_zero or not padded else all_operands(op)
    return factors.rule([dims, ()], [dims], linear=linear)


@rule("concatenate", traits=(Trait.MOVES, Trait.JOINS))
def concatenate(op: Op) -> FactorRule:
    """The rule `a-,a-->a-`: the dim along which operands are joined is not a factor."""
    params: Any = op.params
    return _joined(op, int(params["dimension"]))


def _joined(op: Op, dim: int) -> FactorRule:
    factors = RuleFactors()
    shape = op.results[0].shape
    dims = tuple(factors.each(shape, (dim,) if len(op.operands) > 1 else ()))
    return factors.rule([dims] * len(op.operands), [dims], linear=all_operands(op))


@rule("split", traits=(Trait.MOVES, Trait.SLICES))
def split(op: Op) -> FactorRule:
    """The rule `a-->a-,a-`; the inverse of `concatenate`."""
    params: Any = op.params
    factors = RuleFactors()
    axis = (int(params["axis"]),) if len(op.results) > 1 else ()
    dims = tuple(factors.each(op.operands[0].shape, axis))
    return factors.rule(
        [dims], [dims] * len(op.results), linear=_FIRST, local_params=_local_sizes
    )


def _local_sizes(
    op: Op, operands: tuple[Shape, ...], results: tuple[Shape, ...]
) -> Mapping[str, object]:
    del operands
    params: Any = op.params
    return {**op.params, "sizes": tuple(r[params["axis"]] for r in results)}


@rule("stack", traits=(Trait.MOVES, Trait.JOINS))
def stack(op: Op) -> FactorRule:
    """The rule `a,a->-a`: the new dim is not a factor."""
    factors = RuleFactors()
    dims = factors.each(op.operands[0].shape)
    return factors.rule(
        [tuple(dims)] * len(op.operands),
        [_with_hole(op, dims)],
        linear=all_operands(op),
    )


@rule("unstack", traits=(Trait.MOVES,))
def unstack(op: Op) -> FactorRule:
    """The rule `-a->a,a`; the inverse of `stack`."""
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
