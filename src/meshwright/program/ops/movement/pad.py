"""Padding: dims that are padded have no factor, unless the padding shifts them."""

from meshwright.program.ir import Atom, Literal, Op, Value
from meshwright.program.ops.arithmetic.halo import edge_from_neighbour
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.factors import RuleFactors, all_operands
from meshwright.program.rules.registry import Trait, rule
from meshwright.program.rules.rule import FactorRule, OpCut

_FIRST = (frozenset({0}),)


@rule("pad", traits=(Trait.MOVES,))
def pad(op: Op) -> FactorRule:
    """The rule `ab,->a-`: dims without padding are factors; linear if it pads by 0.

    So are dims that are shifted by one element, whose padding is (1, -1) or (-1, 1): each
    device sends its last or first element to its neighbour.
    """
    operand, value = op.operands
    factors = RuleFactors()
    config = _padding(op)
    padded = [d for d, c in enumerate(config) if c != (0, 0, 0)]
    shifted = [d for d in padded if config[d] in _SHIFTS]
    kept = [d for d in padded if d not in shifted]
    dims = tuple(factors.each(operand.shape, kept))
    return factors.rule(
        [dims, ()],
        [dims],
        linear=_FIRST if _is_zero(value) or not padded else all_operands(op),
        special=frozenset(f for d in shifted for f in dims[d]),
        expand=_shift_parts,
    )


def _is_zero(atom: Atom) -> bool:
    return isinstance(atom, Literal) and bool(atom.value == 0)


_SHIFTS = ((1, -1, 0), (-1, 1, 0))
"""Paddings that shift a dim by one element."""


def _padding(op: Op) -> list[tuple[int, ...]]:
    return [tuple(int(n) for n in c) for c in op.params["padding_config"]]


def _shift_parts(
    builder: Builder, op: Op, operands: tuple[Value, ...], cut: OpCut
) -> tuple[Value, ...]:
    """Shift each part, with the neighbour's element at its end; pad the other dims."""
    x, fill = operands
    config, factor = _padding(op), 0
    for d, padding in enumerate(config):
        if padding not in _SHIFTS and padding != (0, 0, 0):
            continue  # it has no factor
        axes = cut.axes[factor]
        factor += 1
        if padding in _SHIFTS and axes:
            config[d] = (0, 0, 0)
            x = _shift(builder, x, d, axes, padding[0] > 0, fill)
    if all(padding == (0, 0, 0) for padding in config):
        return (x,)
    pairs = zip(x.shape, config, strict=True)
    shape = tuple(n + low + high + gap * max(0, n - 1) for n, (low, high, gap) in pairs)
    params = {**op.params, "padding_config": tuple(config)}
    return builder.apply(op, (x, fill), (shape,), params)


def _shift(
    builder: Builder,
    x: Value,
    dim: int,
    axes: tuple[str, ...],
    is_up: bool,
    fill: Atom,
) -> Value:
    """`x` with a dim that is split along `axes` shifted by one element, up or down."""
    size = x.shape[dim]
    last, first = (size - 1, 0) if is_up else (0, 1)
    edge = builder.slice(x, dim, last, last + 1)
    value = None if _is_zero(fill) else fill
    moved = edge_from_neighbour(builder, edge, axes, value, step=1 if is_up else -1)
    if size == 1:
        return moved
    rest = builder.slice(x, dim, first, first + size - 1)
    return builder.concatenate([moved, rest] if is_up else [rest, moved], dim)
