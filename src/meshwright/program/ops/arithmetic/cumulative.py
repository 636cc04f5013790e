"""Factor rules of cumulative sums, products, maxima, minima and log-sum-exps.

If the scanned dim is split, each device scans its part, all devices gather the parts'
totals, and each part is combined with the total of the parts before it (after it, if
the scan is reversed).
"""

import math

from meshwright.program.ir import Op, Value
from meshwright.program.ops.arithmetic.reduction import identity_of
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.factors import can_sum, same_dims_rule
from meshwright.program.rules.registry import OpWork, Trait, rule
from meshwright.program.rules.rule import FactorRule, OpCut

_COMBINE = {
    "cumsum": ("sum", "add"),
    "cumprod": ("prod", "mul"),
    "cummax": ("max", "max"),
    "cummin": ("min", "min"),
    "cumlogsumexp": ("max", "logaddexp"),
}


@rule(
    *_COMBINE,
    traits=(Trait.STANDALONE, Trait.EXPENSIVE),
    work=lambda op: OpWork(math.prod(op.operands[0].shape)),
)
def scan_dim(op: Op) -> FactorRule:
    """The factor rule `ab->ab`: both dims can be sharded.

    If the scanned dim is split, devices exchange the totals of their parts
    (`_scan_parts`).
    """
    shape = op.operands[0].shape
    scanned: int = op.params["axis"]
    can_split = shape[scanned] > 0 and _neutral(op) is not None
    is_linear = op.kind == "cumsum" and can_sum(op.operands[0].dtype)
    linear = (frozenset({0}),) if is_linear else ()
    if not can_split:
        return same_dims_rule(op, (scanned,), linear=linear)
    return same_dims_rule(
        op, linear=linear, special=frozenset({scanned}), expand=_scan_parts
    )


def _neutral(op: Op) -> bool | int | float | None:
    return identity_of(_COMBINE[op.kind][0], op.operands[0].dtype)


def _scan_parts(
    builder: Builder, op: Op, operands: tuple[Value, ...], cut: OpCut
) -> tuple[Value, ...]:
    """Scan this device's part, then combine it with the total of all earlier parts."""
    (x,) = operands
    dim: int = op.params["axis"]
    axes = cut.axes[dim]  # factor i is dim i, since every dim has a factor here
    (local,) = builder.apply(op, (x,), [x.shape])
    totals = builder.all_gather(_last(builder, op, local), dim, axes)
    earlier = _earlier_totals(builder, op, totals, axes)
    (running,) = builder.apply(op, (earlier,), [earlier.shape])
    carry = _last(builder, op, running)
    kept = tuple(d for d in range(len(x.shape)) if d != dim)
    flat = builder.reshape(carry, tuple(carry.shape[d] for d in kept))
    return (_combine(builder, op, builder.broadcast(flat, x.shape, kept), local),)


def _last(builder: Builder, op: Op, scanned: Value) -> Value:
    """The last element of a scan along its dim, which is the total."""
    dim: int = op.params["axis"]
    at = 0 if op.params["reverse"] else scanned.shape[dim] - 1
    return builder.slice(scanned, dim, at, at + 1)


def _earlier_totals(
    builder: Builder, op: Op, totals: Value, axes: tuple[str, ...]
) -> Value:
    """The totals of the parts that precede this device's part in the scan.

    In place of the other totals stands the identity of the operation.
    """
    dim: int = op.params["axis"]
    before = "gt" if op.params["reverse"] else "lt"
    part = builder.iota(totals.shape, dim)
    is_earlier = builder.compare(before, part, builder.axis_index(axes))
    neutral = builder.full(totals.shape, _neutral(op), totals.dtype)
    return builder.select(is_earlier, neutral, totals)


def _combine(builder: Builder, op: Op, carry: Value, local: Value) -> Value:
    kind = _COMBINE[op.kind][1]
    if kind != "logaddexp":
        return builder.binary(kind, carry, local)
    # log(exp(a) + exp(b)) = max(a, b) + log1p(exp(-|a - b|)), or a + b if a - b is NaN.
    top = builder.binary("max", carry, local)
    gap = builder.binary("sub", carry, local)
    size = builder.unary("neg", builder.unary("abs", gap))
    soft = builder.unary("log1p", builder.unary("exp", size))
    is_nan = builder.compare("ne", gap, gap)
    both = builder.binary("add", carry, local)
    return builder.select(is_nan, builder.binary("add", top, soft), both)
