"""Elementwise primitives: every dim of the result is a factor of each operand.

JAX lets these take scalars beside arrays, and stretches a dim of size 1 against one of
size n: such an operand dim has no letter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

from meshwright.program.ir import Atom, Literal, Op, Value
from meshwright.program.rules.factors import (
    Factor,
    RuleFactors,
    all_operands,
    is_inexact,
    is_low_precision,
)
from meshwright.program.rules.registry import rule
from meshwright.program.rules.rule import Dims, FactorRule, Shape
from meshwright.program.rules.traits import Trait, add_traits
from meshwright.program.rules.work import (
    count_work,
    one_per_element,
    one_transcendental_per_element,
)

Linear = tuple[frozenset[int], ...]

_FIRST: Linear = (frozenset({0}),)
_EITHER: Linear = (frozenset({0}), frozenset({1}))

_ARITHMETIC = (
    # numbers
    "abs", "ceil", "clamp", "floor", "integer_pow", "max", "min", "mulhi", "nextafter",
    "one_minus_square", "polynomial", "rem", "round", "sign", "square",
    # comparisons
    "eq", "eq_to", "ge", "gt", "is_finite", "le", "le_to", "lt", "lt_to", "ne",
    # bits
    "and", "clz", "not", "or", "population_count", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "xor",
)  # fmt: skip
"""Nonlinear functions of one operation for each element."""

_TRANSCENDENTAL = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh",
    "exp", "exp2", "expm1", "log", "log1p", "log2", "logistic", "pow", "rsqrt", "sin",
    "sinh", "sqrt", "tan", "tanh",
    # special functions
    "bessel_i0e", "bessel_i1e", "digamma", "erf", "erf_inv", "erfc", "igamma",
    "igamma_grad_a", "igammac", "lgamma", "polygamma", "regularized_incomplete_beta",
    "zeta",
)  # fmt: skip

_COPIES = (
    "conj", "copy", "imag", "name", "real", "stop_gradient", "tag",
    "xla_metadata_value",
)  # fmt: skip
"""Functions that compute nothing."""


def _nothing(op: Op) -> Linear:
    del op
    return ()


def _first(op: Op) -> Linear:
    del op
    return _FIRST


def _product(op: Op) -> Linear:
    """Linear in either operand; not where the product is made in a wider integer."""
    out = op.results[0].dtype
    plain = all(a.dtype == out or is_inexact(a.dtype) for a in op.operands)
    return _EITHER if plain else ()


def _quotient(op: Op) -> Linear:
    """Not by a divisor that may be zero: infinities of addends do not add up."""
    divisor = op.operands[1]
    is_known = isinstance(divisor, Literal) and bool(divisor.value != 0)
    return _FIRST if is_known and is_inexact(op.results[0].dtype) else ()


def _cases(op: Op) -> Linear:
    """A selection is linear in all its cases together."""
    return (frozenset(range(1, len(op.operands))),)


def _conversion(op: Op) -> Linear:
    """Linear where nothing is rounded: addends rounded alone are off by more."""
    source, target = op.operands[0].dtype, op.results[0].dtype
    if not (is_inexact(source) and is_inexact(target)):
        return _FIRST if source == target else ()
    lost = _BITS.get(source, (99, 99))[1] > _BITS.get(target, (99, 99))[1]
    return () if is_low_precision(target) or lost else _FIRST


_BITS = {
    "bfloat16": (8, 7),
    "float16": (5, 10),
    "float32": (8, 23),
    "float64": (11, 52),
}
"""Exponent and mantissa bits."""


def _rounding(op: Op) -> Linear:
    """Linear where nothing is rounded: checkpointing marks what it saves like this."""
    params: Any = op.params
    exponent, mantissa = _BITS.get(op.operands[0].dtype, (99, 99))
    kept = params["exponent_bits"] >= exponent and params["mantissa_bits"] >= mantissa
    return _FIRST if kept else ()


_LINEAR: dict[str, Callable[[Op], Linear]] = {
    **dict.fromkeys((*_ARITHMETIC, *_TRANSCENDENTAL), _nothing),
    **dict.fromkeys((*_COPIES, "neg"), _first),
    **dict.fromkeys(("add", "add_any", "complex", "sub"), all_operands),
    "convert_element_type": _conversion,
    "div": _quotient,
    "mul": _product,
    "reduce_precision": _rounding,
    "select_n": _cases,
}
"""Every elementwise primitive, with the operands in which it is linear."""

count_work(
    one_per_element,
    *(
        *_ARITHMETIC,
        "add",
        "add_any",
        "complex",
        "div",
        "mul",
        "neg",
        "select_n",
        "sub",
    ),
)
count_work(one_transcendental_per_element, *_TRANSCENDENTAL)

add_traits((Trait.TRANSCENDENTAL,), *_TRANSCENDENTAL)
add_traits((Trait.ADDS,), "add", "add_any")
add_traits((Trait.CHOOSES,), "clamp", "max", "min", "select_n")
add_traits((Trait.ALIASES_OPERAND,), "copy", "name", "stop_gradient", "tag")


@rule(*_LINEAR, traits=(Trait.ELEMENTWISE,))
def elementwise(op: Op) -> FactorRule:
    """`ab,ab->ab`, less the dims of operands that are stretched."""
    factors = RuleFactors()
    (result,) = op.results
    dims = tuple(factors.each(result.shape))
    operands = [_unstretched(a, result, dims) for a in op.operands]
    return factors.rule(operands, [dims], linear=_LINEAR[op.kind](op))


def _unstretched(operand: Atom, result: Value, dims: Dims) -> Dims:
    """The result's letters on the dims that an operand has in full size."""
    if not operand.shape:
        return ()
    return tuple(
        f if n == extent else ()
        for f, n, extent in zip(dims, operand.shape, result.shape, strict=True)
    )


@rule("bitcast_convert_type", "to_edtype", "from_edtype")
def reinterpretation(op: Op) -> FactorRule:
    """`ab->ab`; a last dim that holds the pieces of one element has no letter."""
    factors = RuleFactors()
    (operand,), (result,) = op.operands, op.results
    shared = min(len(operand.shape), len(result.shape))
    dims: list[Factor] = factors.each(result.shape[:shared])
    sides = [
        tuple(dims) + ((),) * (len(value.shape) - shared) for value in (operand, result)
    ]
    return factors.rule(sides[:1], sides[1:])


@rule("optimization_barrier", traits=(Trait.ALIASES_OPERAND,))
def barrier(op: Op) -> FactorRule:
    """`ab,c->ab,c`: each operand has letters of its own."""
    return _side_by_side(op)


@rule("device_put")
def placement(op: Op) -> FactorRule:
    """`ab,c->ab,c`: each operand has letters of its own, and moves to some memory."""
    return replace(_side_by_side(op), local_params=_memories)


def _side_by_side(op: Op) -> FactorRule:
    factors = RuleFactors()
    dims = [tuple(factors.each(a.shape)) for a in op.operands]
    return factors.rule(dims, dims[: len(op.results)], linear=all_operands(op))


def _memories(
    op: Op, operands: tuple[Shape, ...], results: tuple[Shape, ...]
) -> Mapping[str, object]:
    """Memory spaces stay; devices and shardings of the whole mean nothing here."""
    del operands, results
    params: Any = op.params
    places = {
        name: tuple(p if isinstance(p, Enum) else None for p in params[name])
        for name in ("devices", "srcs")
    }
    return {**op.params, **places}


@rule("dce_sink")
def sink(op: Op) -> FactorRule:
    """`ab->`: keeps a value alive, in whatever pieces it comes."""
    factors = RuleFactors()
    return factors.rule([tuple(factors.each(op.operands[0].shape))], [])
