"""Padding: along a padded dim that is split, devices exchange what their parts lack."""

from collections.abc import Sequence
from functools import partial

from meshwright.program.ir import Atom, Op, Value
from meshwright.program.ops.movement.exchange import join_parts
from meshwright.program.ops.movement.joined_slices import Join, Piece, is_zero
from meshwright.program.ops.movement.slices import (
    LARGE,
    SMALL,
    Joins,
    paired_dims,
)
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.factors import (
    Factor,
    RuleFactors,
    all_operands,
    is_key,
)
from meshwright.program.rules.registry import Trait, rule
from meshwright.program.rules.rule import FactorRule, OpCut

_FIRST = (frozenset({0}),)
_NONE = (0, 0, 0)


@rule("pad", traits=(Trait.MOVES,))
def pad(op: Op) -> FactorRule:
    """The factor rule `ab,->ab`, with an exchange where b is padded; linear if by 0."""
    (operand, value), (result,) = op.operands, op.results
    factors = RuleFactors()
    config = _padding(op)
    dims: list[tuple[Factor, Factor]] = []
    joins: dict[int, tuple[int, Join]] = {}
    for d, padding in enumerate(config):
        n, m = operand.shape[d], result.shape[d]
        if padding == _NONE:
            same = factors.one(n)
            dims.append((same, same))
        elif is_key(operand.dtype):
            dims.append(((), ()))
        else:
            source, made = _padded_dims(factors, n, m, padding[2] + 1)
            dims.append((source, made))
            if made:
                spread = padding[2] + 1
                low = (
                    padding[0] - padding[0] % spread
                )  # the rest is padded in each part
                joins[d] = (made[0], _join(d, n * spread, m, low))
    is_linear = is_zero(value) or all(padding == _NONE for padding in config)
    return factors.rule(
        [tuple(source for source, _ in dims), ()],
        [tuple(made for _, made in dims)],
        linear=_FIRST if is_linear else all_operands(op),
        special=frozenset(factor for factor, _ in joins.values()),
        expand=partial(_pad_parts, joins, tuple(bool(source) for source, _ in dims)),
    )


def _padded_dims(
    factors: RuleFactors, n: int, m: int, spread: int
) -> tuple[Factor, Factor]:
    """The factors of a padded dim in the operand and in the result.

    A small operand is complete on every device, which takes its part of the result.
    spread: distance in the result between two neighbours of the operand.
    """
    if LARGE * n * spread >= m and n * spread <= LARGE * m:
        return paired_dims(factors, n, m)
    return ((), factors.one(m)) if n and n * spread * SMALL <= m else ((), ())


def _join(dim: int, n: int, m: int, low: int) -> Join:
    """The join of `n` elements behind `low` fill values to `m` elements."""
    start, at = max(0, -low), max(0, low)
    length = min(n - start, m - at)
    pieces = (Piece(0, start, at, length),) if length > 0 else ()
    return Join(dim, m, (n,), pieces)


def _padding(op: Op) -> list[tuple[int, int, int]]:
    config: Sequence[Sequence[int]] = op.params["padding_config"]
    return [(int(low), int(high), int(gap)) for low, high, gap in config]


def _pad_parts(
    joins: Joins,
    is_cut: tuple[bool, ...],
    builder: Builder,
    op: Op,
    operands: tuple[Value, ...],
    cut: OpCut,
) -> tuple[Value, ...]:
    """Exchange what the parts of split dims lack, then pad the other dims."""
    x, fill = operands
    config = _padding(op)
    for d, (factor, join) in joins.items():
        if not cut.is_cut(factor):
            continue
        low, _, gap = config[d]
        config[d] = _NONE
        if gap:
            low %= gap + 1
            x = _pad(builder, op, x, fill, {d: (low, gap - low, gap)})
        join = Join(join.dim, join.size, join.extents, join.pieces, fill)
        (x,) = join_parts(builder, (x,), (join,), cut.axes[factor], (is_cut[d],))
    rest = {d: padding for d, padding in enumerate(config) if padding != _NONE}
    return (_pad(builder, op, x, fill, rest) if rest else x,)


def _pad(
    builder: Builder,
    op: Op,
    x: Value,
    fill: Atom,
    paddings: dict[int, tuple[int, int, int]],
) -> Value:
    config = tuple(paddings.get(d, _NONE) for d in range(len(x.shape)))
    shape = tuple(
        n + low + high + gap * max(0, n - 1)
        for n, (low, high, gap) in zip(x.shape, config, strict=True)
    )
    params = {**op.params, "padding_config": config}
    return builder.apply(op, (x, fill), (shape,), params)[0]
