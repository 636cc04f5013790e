"""Factor rules of elementwise primitives: each dim of the result is a factor.

A factor is a letter of the rule, such as a and b in `ab,ab->ab`; its dims can be
sharded together. Some primitives take scalars together with arrays, or broadcast a dim
of size 1 to size n; such a dim of an operand has no letter.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from functools import lru_cache
from typing import Any

from meshwright.program.ir import Atom, Literal, Op, Value
from meshwright.program.ops.arithmetic.contraction import product_linear
from meshwright.program.rules.factors import (
    RuleFactors,
    all_operands,
    is_inexact,
    is_low_precision,
    leading_dims_rule,
    same_dims_rule,
)
from meshwright.program.rules.registry import OpWork, Trait, describe, rule
from meshwright.program.rules.rule import Dims, FactorRule, Shape

Linear = tuple[frozenset[int], ...]

_FIRST: Linear = (frozenset({0}),)

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
"""Nonlinear functions that cost one operation per element."""

_LINEAR_ARITHMETIC = (
    "add", "add_any", "complex", "div", "mul", "neg", "select_n", "sub",
)  # fmt: skip
"""Functions that cost one operation per element and are linear in some operands.

An op that is linear in an operand may be applied to partial sums of it.
"""

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
    "conj", "copy", "imag", "layout_constraint", "name", "real", "stop_gradient", "tag",
    "xla_metadata_value",
)  # fmt: skip
"""Elementwise primitives that cost no arithmetic operation."""


def _division(op: Op) -> Linear:
    """The operands in which a division is linear: the dividend, or none.

    It is linear in the dividend if the divisor is a constant other than 0.
    """
    divisor = op.operands[1]
    is_known = isinstance(divisor, Literal) and bool(divisor.value != 0)
    return _FIRST if is_known and is_inexact(op.results[0].dtype) else ()


def _conversion(op: Op) -> Linear:
    """The operands in which a dtype conversion is linear: its operand, or none.

    It counts as linear only if nothing is rounded, since rounding each addend of a
    partial sum would add up the errors.
    """
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
"""Exponent and mantissa bits of float dtypes."""


def _rounding(op: Op) -> Linear:
    """The operands in which `reduce_precision` is linear: its operand, or none.

    It is linear if nothing is rounded. `jax.checkpoint` uses such an op to mark what it
    saves.
    """
    exponent, mantissa = _BITS.get(op.operands[0].dtype, (99, 99))
    kept = (
        op.params["exponent_bits"] >= exponent
        and op.params["mantissa_bits"] >= mantissa
    )
    return _FIRST if kept else ()


_LINEAR: dict[str, Callable[[Op], Linear]] = {
    **dict.fromkeys((*_ARITHMETIC, *_TRANSCENDENTAL), lambda op: ()),
    **dict.fromkeys((*_COPIES, "neg"), lambda op: _FIRST),
    **dict.fromkeys(("add", "add_any", "complex", "sub"), all_operands),
    "convert_element_type": _conversion,
    "div": _division,
    "mul": product_linear,
    "reduce_precision": _rounding,
    "select_n": lambda op: (frozenset(range(1, len(op.operands))),),
}
"""The operands in which each elementwise primitive is linear."""


# Most ops are elementwise and their shapes recur, so that a cache saves most products.
@lru_cache(maxsize=4096)
def _flops_of(shape: Shape) -> OpWork:
    return OpWork(flops=math.prod(shape))


@lru_cache(maxsize=4096)
def _transcendentals_of(shape: Shape) -> OpWork:
    return OpWork(transcendentals=math.prod(shape))


describe(
    *_ARITHMETIC, *_LINEAR_ARITHMETIC, work=lambda op: _flops_of(op.results[0].shape)
)
describe(
    *_TRANSCENDENTAL,
    traits=(Trait.TRANSCENDENTAL,),
    work=lambda op: _transcendentals_of(op.results[0].shape),
)
describe("add", "add_any", traits=(Trait.ADDS,))
describe("clamp", "max", "min", "select_n", traits=(Trait.CHOOSES,))
describe("copy", "name", "stop_gradient", "tag", traits=(Trait.ALIASES_OPERAND,))


@rule(*_LINEAR, traits=(Trait.ELEMENTWISE,))
def elementwise(op: Op) -> FactorRule:
    """The factor rule of an elementwise op, with the operands in which it is linear."""
    return broadcasting_rule(op, linear=_LINEAR[op.kind](op))


def broadcasting_rule(op: Op, **fields: Any) -> FactorRule:
    """The factor rule `ab,ab->ab`; an operand's dim that broadcasts has no letter.

    Each letter is a dim that can be sharded. `fields` are more fields of `FactorRule`.
    """
    factors = RuleFactors()
    dims = tuple(factors.each(op.results[0].shape))
    operands = [_unstretched(a, op.results[0], dims) for a in op.operands]
    return factors.rule(operands, [dims] * len(op.results), **fields)


def _unstretched(operand: Atom, result: Value, dims: Dims) -> Dims:
    """The factors of an operand's dims: the result's, or none where it broadcasts."""
    if not operand.shape:
        return ()
    return tuple(
        f if n == extent else ()
        for f, n, extent in zip(dims, operand.shape, result.shape, strict=True)
    )


@rule("bitcast_convert_type", "to_edtype", "from_edtype")
def reinterpretation(op: Op) -> FactorRule:
    """The factor rule `ab->ab` of a bitcast: both dims can be sharded.

    If an element becomes several narrower ones, the last dim, which has them, has no
    letter.
    """
    (operand,), (result,) = op.operands, op.results
    return leading_dims_rule(op, min(len(operand.shape), len(result.shape)))


@rule("optimization_barrier", traits=(Trait.ALIASES_OPERAND,))
def barrier(op: Op) -> FactorRule:
    """The factor rule `ab,c->ab,c`: the dims of each operand can be sharded."""
    return _identities(op)


@rule("device_put")
def placement(op: Op) -> FactorRule:
    """The factor rule `ab,c->ab,c` of `device_put`: all dims can be sharded.

    Each operand moves to another memory space, such as the host's.
    """
    return replace(_identities(op), local_params=_memories)


def _identities(op: Op) -> FactorRule:
    factors = RuleFactors()
    dims = [tuple(factors.each(a.shape)) for a in op.operands]
    return factors.rule(dims, dims[: len(op.results)], linear=all_operands(op))


def _memories(
    op: Op, operands: tuple[Shape, ...], results: tuple[Shape, ...]
) -> Mapping[str, object]:
    """Parameters of `device_put` that keep memory spaces and drop devices."""
    del operands, results
    places = {
        name: tuple(p if isinstance(p, Enum) else None for p in op.params[name])
        for name in ("devices", "srcs")
    }
    return {**op.params, **places}


@rule("dce_sink")
def keep_alive(op: Op) -> FactorRule:
    """The factor rule `ab->`: the op keeps a value alive and has no result."""
    return same_dims_rule(op)
