"""Windows that reduce: pooling, its gradients, and `reduce_window` in general.

A dim that a window of one element leaves alone is a batch dim. One that a window
slides over is cut with the output where both line up, exchanging halos if windows
overlap; where they do not line up it stays whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from meshwright.program.ir import Atom, Literal, Op, Value
from meshwright.program.ops.arithmetic.halo import (
    Halo,
    Sliding,
    crop,
    extend,
    number_at,
    output_halo,
    paddings_of,
)
from meshwright.program.ops.arithmetic.monoid import identity_of, is_neutral, monoid_of
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.factors import RuleFactors, can_sum, local_shape, no_dims
from meshwright.program.rules.registry import rule
from meshwright.program.rules.rule import Dims, FactorRule, OpCut
from meshwright.program.rules.traits import Trait
from meshwright.program.rules.work import OpWork

_MONOIDS = {
    "reduce_window_sum": "sum",
    "reduce_window_max": "max",
    "reduce_window_min": "min",
}


_OWN_KERNEL = (Trait.STANDALONE, Trait.EXPENSIVE)


def _work(op: Op) -> OpWork:
    """One operation for each element of a window but the first."""
    window = math.prod(cast(tuple[int, ...], op.params["window_dimensions"]))
    return OpWork(math.prod(op.results[0].shape) * max(window - 1, 0))


@rule(*_MONOIDS, traits=_OWN_KERNEL, work=_work)
def pool(op: Op) -> FactorRule:
    """Windows of sums, maxima or minima; outside stands the identity."""
    dtype = op.operands[0].dtype
    is_linear = op.kind == "reduce_window_sum" and can_sum(dtype)
    linear = (frozenset({0}),) if is_linear else ()
    return _windowed(op, (_literal(_MONOIDS[op.kind], dtype),), linear)


@rule("reduce_window", traits=_OWN_KERNEL)
def reduce_window(op: Op) -> FactorRule:
    """Any computation, but halos only where it is a known monoid.

    Backends differ in how often an initial value that is not neutral counts.
    """
    num = len(op.results)
    monoid = monoid_of(op.params["jaxpr"]) if num == 1 else None
    is_known = monoid is not None and is_neutral(op.operands[num], monoid)
    return _windowed(op, tuple(op.operands[num:]) if is_known else (None,) * num, ())


@rule("select_and_gather_add", traits=(Trait.STANDALONE,))
def select_and_gather(op: Op) -> FactorRule:
    """Tangents (linear) at the places that windows of the operand select."""
    tangents, operand = (a.dtype for a in op.operands)
    fills = (Literal(0, tangents), _literal(selected_monoid(op), operand))
    return _windowed(op, fills, (frozenset({0}),) if can_sum(tangents) else ())


def _literal(monoid: str, dtype: str) -> Literal | None:
    value = identity_of(monoid, dtype)
    return None if value is None else Literal(value, dtype)


def selected_monoid(op: Op) -> str:
    """What a selection by `ge` or `le` takes from a window: its max or its min."""
    name = cast(Any, op.params["select_prim"]).name
    return {"ge": "max", "le": "min"}[name]


def _windowed(
    op: Op, fills: tuple[Atom | None, ...], linear: tuple[frozenset[int], ...]
) -> FactorRule:
    """The first `len(fills)` operands are windowed alike, and end in `fills`."""
    factors = RuleFactors()
    operand: list[tuple[int, ...]] = []
    result: list[tuple[int, ...]] = []
    halos: dict[int, tuple[int, Halo]] = {}
    for dim in range(len(op.operands[0].shape)):
        halo = _halo_of(op, dim)
        if halo is None or (None in fills and not halo.is_plain):
            operand.append(())
            result.append(())
            continue
        shared = factors.one(halo.factor, least=halo.least)
        operand.append(shared + factors.never_cut(halo.minor))
        result.append(shared)
        if not halo.is_plain:
            halos[shared[0]] = (dim, halo)
    arrays = (tuple(operand),) * len(fills)
    dims = tuple(result)
    return factors.rule(
        (*arrays, *map(no_dims, op.operands[len(fills) :])),
        (dims,) * len(op.results),
        linear=linear,
        special=frozenset(halos),
        expand=_Exchange(fills, halos, dims).expand,
    )


def _halo_of(op: Op, dim: int) -> Halo | None:
    """How a dim is cut; None where it stays whole, as where its elements are spread."""
    if number_at(op, "base_dilation", dim) != 1:
        return None
    return output_halo(
        Sliding(
            op.operands[0].shape[dim],
            number_at(op, "window_dimensions", dim),
            op.results[0].shape[dim],
            stride=number_at(op, "window_strides", dim),
            padding=paddings_of(op)[dim],
            dilation=number_at(op, "window_dilation", dim),
        )
    )


@dataclass(frozen=True, slots=True)
class _Exchange:
    """The expansion: fetch halos, then reduce windows with what padding remains.

    fills: what stands outside, per windowed operand.
    halos: by factor, its dim and its halo. result: letters of each result.
    """

    fills: tuple[Atom | None, ...]
    halos: Mapping[int, tuple[int, Halo]]
    result: Dims

    def expand(
        self, builder: Builder, op: Op, operands: tuple[Value, ...], cut: OpCut
    ) -> tuple[Value, ...]:
        """Dims one after the other, so that corners travel twice."""
        arrays = list(operands[: len(self.fills)])
        initial = operands[len(self.fills) :]
        padding = paddings_of(op)
        for factor, (dim, halo) in self.halos.items():
            if not cut.is_cut(factor):
                continue
            for i, fill in enumerate(initial or self.fills):
                grown = extend(builder, arrays[i], dim, cut.axes[factor], halo, fill)
                arrays[i], padding[dim] = crop(builder, grown, dim, halo)
        shape = local_shape(op.results[0].shape, self.result, cut)
        params = {**op.params, "padding": tuple(padding)}
        shapes = [shape] * len(op.results)
        return builder.apply(op, (*arrays, *initial), shapes, params)
