"""Factor rules of reductions over dims: sums, extrema, logic, argmax and argmin.

A monoid is the associative operation of a reduction. A reduced dim may be split; the
result is then partial: each device has a term, and a collective combines them with the
monoid.
"""

import math
from collections.abc import Iterable
from typing import Any, cast

from meshwright.program.ir import Atom, Literal, Op, Value
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.factors import RuleFactors, can_sum, no_dims
from meshwright.program.rules.registry import OpWork, Trait, rule
from meshwright.program.rules.rule import FactorRule, OpCut, opaque_rule

_OF_BOOL = {"and": True, "or": False, "xor": False, "max": False, "min": True}

_WITH_INFINITY = ("float64", "float32", "float16", "bfloat16")

_BINARY = {"add": "sum", "mul": "prod"} | {
    name: name for name in ("max", "min", "and", "or", "xor")
}

_IDEMPOTENT = ("max", "min", "and", "or")


def identity_of(monoid: str, dtype: str) -> bool | int | float | None:
    """The identity element of the operation `monoid` in `dtype`.

    `None` if there is none. There is none for max and min of complex numbers, which
    have no order, nor of floats of 8 bits, since some of these dtypes have no infinity.
    """
    if dtype == "bool":
        return _OF_BOOL.get(monoid)
    if monoid in ("sum", "or", "xor"):
        return 0
    if monoid == "prod":
        return 1
    if dtype.startswith(("int", "uint")):
        low, high = integer_range(dtype)
        return {"max": low, "min": high, "and": -1 if low else high}[monoid]
    if dtype in _WITH_INFINITY:
        return float("-inf") if monoid == "max" else float("inf")
    return None


def integer_range(dtype: str) -> tuple[int, int]:
    """The smallest and the largest number of an integer dtype."""
    bits = int(dtype.lstrip("uint"))
    if dtype.startswith("u"):
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def is_neutral(init: Atom, monoid: str) -> bool:
    """Whether every device may start its part of a reduction from `init`.

    It may if `init` is the identity, or if max, min, and, or make repeated starts
    harmless.
    """
    if monoid in _IDEMPOTENT:
        return True
    if not isinstance(init, Literal):
        return False
    return bool(init.value == identity_of(monoid, init.dtype))


def monoid_of(jaxpr: Any) -> str | None:
    """The operation that a jaxpr of two scalars computes, such as "sum".

    `None` if the jaxpr is not exactly one of the known operations.
    """
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    if len(inner.eqns) != 1:
        return None
    (equation,) = inner.eqns
    taken, given = list(inner.invars), list(equation.invars)
    if given not in (taken, taken[::-1]):
        return None
    if list(inner.outvars) != list(equation.outvars):
        return None
    name: str = equation.primitive.name
    if name in ("jit", "pjit"):
        return monoid_of(equation.params["jaxpr"])
    return _BINARY.get(name)


_MONOIDS = {f"reduce_{monoid}": monoid for monoid in _BINARY.values()}

_MAPPED = {"psum": "sum", "pmax": "max", "pmin": "min"}
"""Reductions over a named axis of `vmap`, which becomes a dim when it is traced."""


_REDUCES = (Trait.REDUCTION, Trait.EXPENSIVE)


def _work(op: Op) -> OpWork:
    """The work of a reduction: one operation per operand element, less one a result."""
    operand, result = op.operands[0].shape, op.results[0].shape
    return OpWork(max(math.prod(operand) - math.prod(result), 0))


@rule(*_MONOIDS, traits=_REDUCES, work=_work)
def reduce_dims(op: Op) -> FactorRule:
    """The factor rule `ab->a`, if dim b is reduced; both dims can be sharded.

    To split b leaves a partial result on each device.
    """
    monoid = _across_devices(_MONOIDS[op.kind], op.operands[0].dtype)
    return _reduction(op, op.params["axes"], monoid)


@rule("reduce", traits=_REDUCES, work=_work)
def reduce_any(op: Op) -> FactorRule:
    """The factor rule of `lax.reduce` with any function.

    The reduced dims can be sharded only if the function is a known operation, such as a
    sum.
    """
    monoid = None
    if len(op.results) == 1:
        found = monoid_of(op.params["jaxpr"])
        if found and is_neutral(op.operands[1], found):
            monoid = _across_devices(found, op.operands[0].dtype)
    return _reduction(op, op.params["dimensions"], monoid)


@rule(*_MAPPED)
def reduce_mapped(op: Op) -> FactorRule:
    """The factor rule of `psum`, `pmax` or `pmin` over an axis of `vmap`.

    Tracing has made a dim of that axis.
    """
    axes = op.params["axes"]
    is_plain = len(op.operands) == 1 and op.params.get("axis_index_groups") is None
    if not is_plain or not all(isinstance(a, int) for a in axes):
        return opaque_rule(op, "it reduces over an axis of the user's shard_map")
    return _reduction(op, axes, _across_devices(_MAPPED[op.kind], op.operands[0].dtype))


def _reduction(op: Op, axes: object, monoid: str | None) -> FactorRule:
    """The factor rule of a reduction over the dims `axes`.

    These dims can be split only if `monoid`, which combines partial results, is not
    `None`.
    """
    reduced = frozenset(cast(Iterable[int], axes))
    num = len(op.results)
    factors = RuleFactors()
    dims = tuple(factors.each(op.operands[0].shape, () if monoid else reduced))
    kept = tuple(fs for dim, fs in enumerate(dims) if dim not in reduced)
    return factors.rule(
        (*(dims,) * num, *map(no_dims, op.operands[num:])),
        (kept,) * num,
        monoid=monoid or "sum",
        linear=(frozenset({0}),) if monoid == "sum" else (),
    )


def _across_devices(monoid: str, dtype: str) -> str | None:
    """The operation that combines the devices' partial results; `None` if none can.

    For the maximum of bools it is `or`. Complex numbers have no order. Sums of floats
    of at most 8 bits would be rounded more often than on one device.
    """
    if monoid in ("sum", "prod"):
        return monoid if can_sum(dtype) else None
    if identity_of(monoid, dtype) is None:
        return None
    if dtype == "bool":
        return {"max": "or", "min": "and"}.get(monoid, monoid)
    return monoid


@rule("argmax", "argmin", traits=_REDUCES, work=_work)
def locate_extremum(op: Op) -> FactorRule:
    """The factor rule `ab->a` of argmax and argmin over dim b; both can be sharded.

    If b is split, the devices compare the extrema of their parts (`_locate_in_parts`).
    """
    (searched,) = op.params["axes"]
    factors = RuleFactors()
    can_compare = identity_of(_extremum(op), op.operands[0].dtype) is not None
    without = () if can_compare else (searched,)
    dims = tuple(factors.each(op.operands[0].shape, without))
    kept = dims[:searched] + dims[searched + 1 :]
    return factors.rule(
        (dims,),
        (kept,),
        monoid="min",
        special=frozenset(dims[searched]),
        expand=_locate_in_parts,
    )


def _extremum(op: Op) -> str:
    return "max" if op.kind == "argmax" else "min"


def _locate_in_parts(
    builder: Builder, op: Op, operands: tuple[Value, ...], cut: OpCut
) -> tuple[Value, ...]:
    """The position of the extremum if this device has it, else the largest integer.

    The minimum of these over all devices is the first position of the extremum. As in
    JAX, NaN counts as the extremum.
    """
    (x,) = operands
    (dim,) = op.params["axes"]
    axes = cut.axes[dim]  # factor i is dim i, since every dim has a factor here
    shape = x.shape[:dim] + x.shape[dim + 1 :]
    (index,) = builder.apply(op, operands, [shape])
    start = builder.binary("mul", builder.axis_index(axes), x.shape[dim])
    position = builder.binary("add", index, builder.convert(start, index.dtype))
    best = builder.reduce(x, (dim,), _extremum(op))
    every = builder.all_gather(builder.reshape(best, (1, *shape)), 0, axes)
    wins = builder.compare("eq", best, builder.reduce(every, (0,), _extremum(op)))
    if "float" in best.dtype:
        wins = builder.binary("or", wins, builder.compare("ne", best, best))
    never = builder.full(shape, integer_range(index.dtype)[1], index.dtype)
    return (builder.select(wins, never, position),)
