"""Factor rules: what an op does to its dimensions.

A rule names the dims of operands and results with letters, as an einsum does. A letter
in operands and results is *parallel*; only in operands, a *reduction*: cutting it leaves
the result partial; only in results, *new*. A dim without letters cannot be cut. A
dim may be a product of letters, major to minor (reshape).

Propagation, lowering, cost and tests read rules; none of them names an op.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from meshwright.errors import RuleError
from meshwright.program.ir import Op, Value

if TYPE_CHECKING:
    from meshwright.program.rules.builder import Builder

Dims = tuple[tuple[int, ...], ...]
"""Per dim its factors, major to minor; the empty tuple for a dim that cannot be cut."""

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpCut:
    """How one op is cut: per factor the mesh axes, and their number of parts."""

    axes: tuple[tuple[str, ...], ...]
    parts: tuple[int, ...]

    def is_cut(self, factor: int) -> bool:
        """True when some axis cuts the factor."""
        return bool(self.axes[factor])


LocalParams = Callable[[Op, tuple[Shape, ...], tuple[Shape, ...]], Mapping[str, object]]
"""(op, local operand shapes, local result shapes) -> the primitive's parameters for one
device; needed where parameters spell out shapes."""

Expand = Callable[["Builder", Op, tuple[Any, ...], OpCut], tuple[Value, ...]]
"""(builder, op, local operands, cut) -> local results; needed where the part on one
device is not the same primitive on smaller shapes."""


@dataclass(frozen=True)
class FactorRule:
    """What one op does to its dimensions.

    sizes: extent of each factor.
    operands, results: per value, per dim, the factors.
    monoid: how parts combine when a reduction factor is cut.
    linear: sets of operands in which the op is linear when all of a set are partial
        sums and all other operands are whole; the result is then partial too.
    special: factors that only `expand` can cut.
    least: smallest local size of a factor that a cut must leave, where it is not 1.
    is_zero: every result is zero, whatever the operands are.
    done: factors over which the op itself reduces, so that nothing is left partial.
    opaque: why the op cannot be cut at all ("" when it can).
    """

    sizes: tuple[int, ...]
    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    monoid: str = "sum"
    linear: tuple[frozenset[int], ...] = ()
    special: frozenset[int] = frozenset()
    least: Mapping[int, int] | None = None
    local_params: LocalParams | None = None
    expand: Expand | None = None
    is_zero: bool = False
    done: frozenset[int] = frozenset()
    opaque: str = ""

    @cached_property
    def reductions(self) -> frozenset[int]:
        """Factors that stand in operands only."""
        used = {f for dims in self.operands for fs in dims for f in fs}
        made = {f for dims in self.results for fs in dims for f in fs}
        return frozenset(used - made - self.done)

    def check(self, op: Op) -> None:
        """Raise `RuleError` unless every named dim is the product of its factors."""
        for side, values in ((self.operands, op.operands), (self.results, op.results)):
            if len(side) != len(values):
                raise RuleError(
                    f"rule of {op.kind!r} names {len(side)} of {len(values)}"
                )
            for dims, value in zip(side, values, strict=True):
                self._check_value(op, dims, value.shape)
        if self.special and self.expand is None:
            raise RuleError(f"rule of {op.kind!r} has special factors but no expansion")

    def _check_value(self, op: Op, dims: Dims, shape: Shape) -> None:
        if len(dims) != len(shape):
            raise RuleError(f"rule of {op.kind!r}: {len(dims)} dims for shape {shape}")
        flat = [f for fs in dims for f in fs]
        if len(flat) != len(set(flat)):
            raise RuleError(f"rule of {op.kind!r} uses a factor twice in one value")
        for factors, extent in zip(dims, shape, strict=True):
            if factors and math.prod(self.sizes[f] for f in factors) != extent:
                raise RuleError(
                    f"rule of {op.kind!r}: factors {factors} do not make {extent}"
                )


def parse_letters(text: str) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """Letters per dim per value: `"b(ij),-k"` is (b, (i, j)) and (none, k)."""
    return tuple(_parse_value(part.strip()) for part in text.split(",")) if text else ()


def _parse_value(text: str) -> tuple[tuple[str, ...], ...]:
    dims: list[tuple[str, ...]] = []
    group: list[str] | None = None
    for char in text:
        if char == "(":
            group = []
        elif char == ")":
            dims.append(tuple(group or ()))
            group = None
        elif group is not None:
            group.append(char)
        else:
            dims.append(() if char == "-" else (char,))
    return tuple(dims)


def einsum_rule(
    letters: str, op: Op, sizes: Mapping[str, int] | None = None, **fields: object
) -> FactorRule:
    """The rule that `letters` spells: `"bik,bkj->bij"`, values separated by commas.

    `-` is a dim that cannot be cut, `(ij)` a dim that is a product. Sizes of letters
    that only stand in products must be given in `sizes`. `fields` are those of
    `FactorRule`; factor numbers in them count letters in order of first appearance.
    """
    left, arrow, right = letters.partition("->")
    if not arrow:
        raise RuleError(f"letters {letters!r} lack '->'")
    sides = (parse_letters(left), parse_letters(right))
    known: dict[str, int] = dict(sizes or {})
    order: list[str] = []
    for side, values in zip(sides, (op.operands, op.results), strict=True):
        for dims, value in zip(side, values, strict=False):
            for names, extent in zip(dims, value.shape, strict=False):
                order.extend(n for n in names if n not in order)
                if len(names) == 1:
                    known.setdefault(names[0], extent)
    index = {name: i for i, name in enumerate(order)}
    numbered = [
        tuple(tuple(tuple(index[n] for n in names) for names in dims) for dims in side)
        for side in sides
    ]
    missing = [n for n in order if n not in known]
    if missing:
        raise RuleError(f"letters {letters!r} of {op.kind!r}: no size for {missing}")
    found = FactorRule(
        tuple(known[n] for n in order),
        numbered[0],
        numbered[1],
        **fields,  # pyright: ignore[reportArgumentType]
    )
    found.check(op)
    return found


def opaque_rule(op: Op, why: str) -> FactorRule:
    """The rule of an op that stays whole: no dim has a letter."""
    return FactorRule(
        (),
        tuple(((),) * len(a.shape) for a in op.operands),
        tuple(((),) * len(r.shape) for r in op.results),
        opaque=why,
    )
