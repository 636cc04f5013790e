"""Factor rules of reductions over windows, and of the derivatives of max-pooling.

A dim along which the window has one element is a batch dim. A dim over which the window
slides can be sharded if parts of input and output correspond; devices exchange halos
(edge elements of their parts) if windows overlap. If parts do not correspond, it
cannot.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from meshwright.program.ir import Atom, Literal, Op, Value
from meshwright.program.ops.arithmetic.halo import (
    Halo,
    Sliding,
    crop,
    extend,
    output_halo,
    paddings_of,
)
from meshwright.program.ops.arithmetic.reduction import (
    identity_of,
    is_neutral,
    monoid_of,
)
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.factors import RuleFactors, can_sum, local_shape, no_dims
from meshwright.program.rules.registry import OpWork, Trait, rule
from meshwright.program.rules.rule import Dims, FactorRule, OpCut

_MONOIDS = {
    "reduce_window_sum": "sum",
    "reduce_window_max": "max",
    "reduce_window_min": "min",
}


_OWN_KERNEL = (Trait.STANDALONE, Trait.EXPENSIVE)


def _work(op: Op) -> OpWork:
    """The work of a windowed reduction: window elements less one, per result."""
    window = math.prod(op.params["window_dimensions"])
    return OpWork(math.prod(op.results[0].shape) * max(window - 1, 0))


@rule(*_MONOIDS, traits=_OWN_KERNEL, work=_work)
def pool(op: Op) -> FactorRule:
    """The factor rule of sums, maxima or minima over windows."""
    dtype = op.operands[0].dtype
    is_linear = op.kind == "reduce_window_sum" and can_sum(dtype)
    linear = (frozenset({0}),) if is_linear else ()
    return _windowed(op, (_literal(_MONOIDS[op.kind], dtype),), linear)


@rule("reduce_window", traits=_OWN_KERNEL)
def reduce_window(op: Op) -> FactorRule:
    """The factor rule of `reduce_window` with any function.

    Halos are exchanged only for a known operation, such as a sum. For others, the
    initial value may be combined with the elements more than once, and backends differ
    in how often.
    """
    num = len(op.results)
    monoid = monoid_of(op.params["jaxpr"]) if num == 1 else None
    is_known = monoid is not None and is_neutral(op.operands[num], monoid)
    return _windowed(op, tuple(op.operands[num:]) if is_known else (None,) * num, ())


@rule("select_and_gather_add", traits=(Trait.STANDALONE,))
def select_and_gather(op: Op) -> FactorRule:
    """The factor rule of the tangent of max-pooling, read where windows select."""
    tangents, operand = (a.dtype for a in op.operands)
    fills = (Literal(0, tangents), _literal(_selected_monoid(op), operand))
    return _windowed(op, fills, (frozenset({0}),) if can_sum(tangents) else ())


def _literal(monoid: str, dtype: str) -> Literal | None:
    value = identity_of(monoid, dtype)
    return None if value is None else Literal(value, dtype)


def _selected_monoid(op: Op) -> str:
    """The extremum that is selected from each window: max (`ge`) or min (`le`)."""
    return {"ge": "max", "le": "min"}[op.params["select_prim"].name]


def _windowed(
    op: Op, fills: tuple[Atom | None, ...], linear: tuple[frozenset[int], ...]
) -> FactorRule:
    """The factor rule of an op whose first `len(fills)` operands have windows.

    fills: value that pads each of these operands; `None` if halos cannot be exchanged.
    """
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
        operand.append(shared + factors.indivisible(halo.minor))
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
    """The halo of one dim.

    `None` if the dim, such as a dilated one, cannot be split.
    """
    if op.params["base_dilation"][dim] != 1:
        return None
    return output_halo(
        Sliding(
            op.operands[0].shape[dim],
            op.params["window_dimensions"][dim],
            op.results[0].shape[dim],
            stride=op.params["window_strides"][dim],
            padding=paddings_of(op)[dim],
            dilation=op.params["window_dilation"][dim],
        )
    )


@dataclass(frozen=True, slots=True)
class _Exchange:
    """The expansion of a windowed op on one device, which exchanges halos.

    fills: padding values, one per operand with windows.
    halos: for each split factor, the dim and the halo to fetch.
    result: factors of each result's dims.
    """

    fills: tuple[Atom | None, ...]
    halos: Mapping[int, tuple[int, Halo]]
    result: Dims

    def expand(
        self, builder: Builder, op: Op, operands: tuple[Value, ...], cut: OpCut
    ) -> tuple[Value, ...]:
        """Fetch halos one dim after the other, which forwards corners.

        Then reduce windows.
        """
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


@rule("select_and_scatter_add", traits=(Trait.STANDALONE, Trait.EXPENSIVE))
def select_and_scatter_add(op: Op) -> FactorRule:
    """The factor rule of the gradient of max- or min-pooling, linear in the source."""
    source, operand = op.operands
    fill = identity_of(_selected_monoid(op), operand.dtype)
    linear = (frozenset({0}),) if can_sum(source.dtype) else ()
    return _scattered(op, (0, 1), can_fill=fill is not None, linear=linear)


@rule("select_and_scatter", traits=(Trait.STANDALONE,))
def select_and_scatter(op: Op) -> FactorRule:
    """The factor rule of any selection and scatter.

    Overlapping windows forbid a split.
    """
    return _scattered(op, (1, 0), can_fill=False, linear=())


def _scattered(
    op: Op, order: tuple[int, int], can_fill: bool, linear: tuple[frozenset[int], ...]
) -> FactorRule:
    """The factor rule of a selection and scatter, as in max-pooling's gradient.

    order: positions of the source (the values to scatter) and of the operand in whose
        windows positions are selected.
    can_fill: whether halos can be exchanged, since a padding value is known.
    """
    source, operand = (op.operands[i] for i in order)
    factors = RuleFactors()
    source_dims: list[tuple[int, ...]] = []
    operand_dims: list[tuple[int, ...]] = []
    overlaps: dict[int, tuple[int, Halo, Halo]] = {}
    for dim, extents in enumerate(zip(operand.shape, source.shape, strict=True)):
        halos = _overlap_of(op, dim, extents)
        if halos is None or not (halos[0].is_plain or can_fill):
            source_dims.append(())
            operand_dims.append(())
            continue
        halo, source_halo = halos
        shared = factors.one(halo.factor, max(halo.least, source_halo.least))
        source_dims.append(shared)
        operand_dims.append(shared + factors.indivisible(halo.minor))
        if not halo.is_plain:
            overlaps[shared[0]] = (dim, halo, source_halo)
    named = [tuple(source_dims), tuple(operand_dims)]
    return factors.rule(
        (named[order[0]], named[order[1]], *map(no_dims, op.operands[2:])),
        (tuple(operand_dims),),
        linear=linear,
        special=frozenset(overlaps),
        expand=partial(_scatter_parts, overlaps),
    )


def _overlap_of(op: Op, dim: int, extents: tuple[int, int]) -> tuple[Halo, Halo] | None:
    """The halos of operand and source along one dim.

    `None` if parts of operand and windows do not correspond.

    A device needs the source of all windows that overlap its part of the operand: up to
    `before` windows of the previous part and `after` of the next. To select in them, it
    needs `left` elements of the operand before its part, and `right` after it.
    """
    window = op.params["window_dimensions"][dim]
    stride = op.params["window_strides"][dim]
    low, high = paddings_of(op)[dim]
    size, num = extents
    plain = output_halo(Sliding(size, window, num, stride, (low, high)))
    if plain is None or low < 0:
        return None
    before = max(0, (window - 1 - low) // stride)
    after = (low + stride - 1) // stride
    left = before * stride + low
    right = max(0, (after - 1) * stride - low + window)
    if plain.is_plain and not before and not after:
        return plain, plain
    return (
        Halo(left, right, (0, 0), num, stride, 1, is_plain=False),
        Halo(before, after, (0, 0), num, 1, 1, is_plain=False),
    )


def _scatter_parts(
    overlaps: Mapping[int, tuple[int, Halo, Halo]],
    builder: Builder,
    op: Op,
    operands: tuple[Value, ...],
    cut: OpCut,
) -> tuple[Value, ...]:
    """Fetch halos and scatter, then drop the halo of the result.

    The device that owns those elements computes them itself.
    """
    source, operand = operands
    exchanged = {f: each for f, each in overlaps.items() if cut.is_cut(f)}
    fill = _literal(_selected_monoid(op), operand.dtype)
    padding = paddings_of(op)
    local = operand.shape
    for factor, (dim, halo, source_halo) in exchanged.items():
        axes = cut.axes[factor]
        source = extend(builder, source, dim, axes, source_halo)
        operand = extend(builder, operand, dim, axes, halo, fill)
        padding[dim] = (0, 0)
    params = {**op.params, "padding": tuple(padding)}
    (grown,) = builder.apply(op, (source, operand), [operand.shape], params)
    for dim, halo, _ in exchanged.values():
        grown = builder.slice(grown, dim, halo.left, halo.left + local[dim])
    return (grown,)
