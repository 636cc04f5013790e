"""Select and scatter: adds to one element per window, as the gradient of max-pooling does.

Windows that do not overlap are each within one part. For overlapping windows, a part
fetches the neighbours' edges with their sources, scatters, and drops the edges again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.program.ir import Literal, Op, Value
from meshwright.program.ops.arithmetic.halo import (
    Halo,
    Sliding,
    extend,
    number_at,
    output_halo,
    paddings_of,
)
from meshwright.program.ops.arithmetic.monoid import identity_of
from meshwright.program.ops.arithmetic.window import selected_monoid
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.factors import RuleFactors, can_sum, no_dims
from meshwright.program.rules.registry import Trait, rule
from meshwright.program.rules.rule import FactorRule, OpCut


@dataclass(frozen=True, slots=True)
class _Overlap:
    """The halos of operand and source along one dim."""

    dim: int
    operand: Halo
    source: Halo


@rule("select_and_scatter_add", traits=(Trait.STANDALONE, Trait.EXPENSIVE))
def select_and_scatter_add(op: Op) -> FactorRule:
    """The rule of a source and an operand; linear in the source."""
    source, operand = op.operands
    fill = identity_of(selected_monoid(op), operand.dtype)
    linear = (frozenset({0}),) if can_sum(source.dtype) else ()
    return _scattered(op, (0, 1), can_fill=fill is not None, linear=linear)


@rule("select_and_scatter", traits=(Trait.STANDALONE,))
def select_and_scatter(op: Op) -> FactorRule:
    """The rule for any selection and any scatter: split only if no windows overlap."""
    return _scattered(op, (1, 0), can_fill=False, linear=())


def _scattered(
    op: Op, order: tuple[int, int], can_fill: bool, linear: tuple[frozenset[int], ...]
) -> FactorRule:
    """The rule; `order` says which operand is the source, and which has the windows."""
    source, operand = (op.operands[i] for i in order)
    factors = RuleFactors()
    source_dims: list[tuple[int, ...]] = []
    operand_dims: list[tuple[int, ...]] = []
    overlaps: dict[int, _Overlap] = {}
    for dim, extents in enumerate(zip(operand.shape, source.shape, strict=True)):
        overlap = _overlap_of(op, dim, extents)
        if overlap is None or not (overlap.operand.is_plain or can_fill):
            source_dims.append(())
            operand_dims.append(())
            continue
        halo = overlap.operand
        shared = factors.one(halo.factor, max(halo.least, overlap.source.least))
        source_dims.append(shared)
        operand_dims.append(shared + factors.indivisible(halo.minor))
        if not halo.is_plain:
            overlaps[shared[0]] = overlap
    named = [tuple(source_dims), tuple(operand_dims)]
    return factors.rule(
        (named[order[0]], named[order[1]], *map(no_dims, op.operands[2:])),
        (tuple(operand_dims),),
        linear=linear,
        special=frozenset(overlaps),
        expand=_Exchange(overlaps).expand,
    )


def _overlap_of(op: Op, dim: int, extents: tuple[int, int]) -> _Overlap | None:
    """The halos of one dim; `None` if windows and parts do not correspond.

    Windows that overlap a part start up to `before` windows earlier or `after` later.
    Together they cover the operand from `before * stride + low` elements ahead of it.
    """
    window = number_at(op, "window_dimensions", dim)
    stride = number_at(op, "window_strides", dim)
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
        return _Overlap(dim, plain, plain)
    return _Overlap(
        dim,
        Halo(left, right, (0, 0), num, stride, 1, is_plain=False),
        Halo(before, after, (0, 0), num, 1, 1, is_plain=False),
    )


@dataclass(frozen=True, slots=True)
class _Exchange:
    """The expansion of `select_and_scatter_add`, with the overlaps by factor."""

    overlaps: Mapping[int, _Overlap]

    def expand(
        self, builder: Builder, op: Op, operands: tuple[Value, ...], cut: OpCut
    ) -> tuple[Value, ...]:
        """Fetch halos, scatter, and drop them: neighbours compute those elements too."""
        source, operand = operands
        chosen = [o for f, o in self.overlaps.items() if cut.is_cut(f)]
        fill = Literal(identity_of(selected_monoid(op), operand.dtype), operand.dtype)
        padding = paddings_of(op)
        local_shape = operand.shape
        for factor, each in self.overlaps.items():
            if cut.is_cut(factor):
                axes = cut.axes[factor]
                source = extend(builder, source, each.dim, axes, each.source)
                operand = extend(builder, operand, each.dim, axes, each.operand, fill)
                padding[each.dim] = (0, 0)
        params = {**op.params, "padding": tuple(padding)}
        (grown,) = builder.apply(op, (source, operand), [operand.shape], params)
        for each in chosen:
            start, extent = each.operand.left, local_shape[each.dim]
            grown = builder.slice(grown, each.dim, start, start + extent)
        return (grown,)
