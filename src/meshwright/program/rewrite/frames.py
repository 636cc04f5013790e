"""Frames: values of which others are windows, as `even_dims.py` makes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from meshwright.program.ir import Atom, Literal, Op, Value
from meshwright.program.ops import FactorRule, Trait, has_trait
from meshwright.program.ops.arithmetic.reduction import identity_of
from meshwright.program.ops.movement.joined_slices import Piece
from meshwright.program.rewrite.window_moves import Interval, Move

type Window = tuple[int, int]
"""The extent of a frame, and the position in it of a window's first element."""

RESIZABLE = (
    Trait.ELEMENTWISE,
    Trait.CHOOSES,
    Trait.CONTRACTION,
    Trait.REDUCTION,
    Trait.MOVES,
    Trait.ALIASES_OPERAND,
)


@dataclass(frozen=True, slots=True)
class EvenFrame:
    """A value as a window of another.

    value: the larger value. starts: for each dim in which it is larger, the position of
        the window's first element.
    """

    value: Value
    starts: Mapping[int, int] = field(default_factory=dict)


def is_resizable(op: Op, rule: FactorRule, factor: int) -> bool:
    """Whether an op may run on more elements of a factor."""
    if factor in rule.special or factor in (rule.least or {}) or factor in rule.done:
        return False
    sides = (*rule.operands, *rule.results)
    if any(factor in fs and len(fs) > 1 for dims in sides for fs in dims):
        return False
    if factor not in rule.reductions:
        return True
    if has_trait(op.kind, Trait.CONTRACTION):
        return True
    is_reduction = has_trait(op.kind, Trait.REDUCTION) and len(op.results) == 1
    return is_reduction and identity_of(rule.monoid, op.operands[0].dtype) is not None


def windows_of(frames: Sequence[EvenFrame], but: int) -> dict[int, Window]:
    """Where the first frame that is larger in a dim has its window; all dims but one."""
    found: dict[int, Window] = {}
    for frame in frames:
        for dim, start in frame.starts.items():
            if dim != but:
                found.setdefault(dim, (frame.value.shape[dim], start))
    return found


def has_gap(move: Move) -> bool:
    return sum(part.length for part in move.parts) < size_of(move)


def size_of(move: Move) -> int:
    return move.result.shape[move.dim]


def are_alike(fills: Sequence[Atom]) -> bool:
    values = [f.value if isinstance(f, Literal) else f for f in fills]
    return all(value is values[0] or value == values[0] for value in values)


def within(part: Interval, inner: Move) -> list[Interval]:
    """An interval of a joined value, as intervals of what it is joined from."""
    found: list[Interval] = []
    for each in inner.parts:
        start = max(part.start, each.at)
        stop = min(part.start + part.length, each.at + each.length)
        if start < stop:
            read = each.start + start - each.at
            place = part.at + start - part.start
            found.append(Interval(each.value, read, place, stop - start))
    return found


def grown(
    parts: Sequence[Interval], size: int, dim: int, window: tuple[int, int]
) -> list[Interval]:
    """The parts of a frame, those at the ends of its window grown into what is beside it.

    window: the positions of its first element and after its last. A gap inside of it
        stays one: what is there holds the fill value, what is beside it may hold anything.
    """
    found = list(ordered(parts))
    start, stop = window
    if found and found[0].at == start:
        first = found[0]
        more = min(first.start, first.at)
        found[0] = replace(
            first,
            start=first.start - more,
            at=first.at - more,
            length=first.length + more,
        )
    if found and found[-1].at + found[-1].length == stop:
        last = found[-1]
        more = min(last.value.shape[dim] - last.start - last.length, size - stop)
        found[-1] = replace(last, length=last.length + more)
    return found


def ordered[Part: (Piece, Interval)](parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts of a join, in the order of their places in the result."""
    return tuple(sorted(parts, key=lambda part: part.at))
