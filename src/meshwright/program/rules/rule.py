"""Factor rules: how the dims of an op's operands and results correspond.

A rule names dims by letters (factors), as einsum does and as Shardy's `OpShardingRule`
does: `"bik,bkj->bij"` is a batched matrix product. Splitting a factor over devices splits
every dim that it names. A factor in operands and results is *parallel*. A factor in
operands alone is a *reduction*: after splitting it, devices hold partial results. A
factor in results alone is *new*. A dim without factors cannot be split. A dim may be the
product of several factors, major to minor (`"(ab)c->a(bc)"` is a reshape).
`partitioner/propagate/legality.py` says why an axis cannot split a factor, for instance one
that it does not divide.

Propagation, lowering, cost models and tests read rules; none of them asks for an op by
name. The package's docstring says how to add an op.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from meshwright.errors import RuleError
from meshwright.program.ir import Op, Value

if TYPE_CHECKING:
    from meshwright.program.rules.builder import Builder

Dims = tuple[tuple[int, ...], ...]
"""Per dim its factors, major to minor; the empty tuple for a dim that cannot be split."""

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpCut:
    """How one op is partitioned: per factor the mesh axes, and the number of parts."""

    axes: tuple[tuple[str, ...], ...]
    parts: tuple[int, ...]

    def is_cut(self, factor: int) -> bool:
        """Whether some mesh axis splits the factor."""
        return bool(self.axes[factor])


LocalParams = Callable[[Op, tuple[Shape, ...], tuple[Shape, ...]], Mapping[str, object]]
"""A function from (op, local operand shapes, local result shapes) to the primitive's
parameters on one device. Rules of primitives whose parameters contain shapes need one."""

Expand = Callable[["Builder", Op, tuple[Any, ...], OpCut], tuple[Value, ...]]
"""A function from (builder, op, local operands, cut) to the local results. Rules of ops
whose part on one device is not the same primitive on smaller shapes need one."""


@dataclass(frozen=True)
class FactorRule:
    """The factors of one op.

    sizes: extent of each factor.
    operands, results: per value, per dim, its factors.
    monoid: the reduction that combines parts after a reduction factor has been split.
    linear: sets of operands. If all operands of a set are partial sums and all others
        are whole, the op may be applied to the partial sums; its result is partial.
    special: factors that only `expand` can split, for which devices exchange data or
        change the op (Shardy: permutation and need-replication factors).
    least: by factor, the smallest size that a part may have, if it is not 1.
    local_params, expand: how one device's part is written, if it is not the same op.
    is_zero: every result is zero, whatever the operands are.
    done: factors over which the op itself reduces, so that no result is partial.
    opaque: why the op cannot be partitioned at all ("" if it can).
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
        """Factors that are in operands only and that the op does not reduce itself."""
        used = {f for dims in self.operands for fs in dims for f in fs}
        made = {f for dims in self.results for fs in dims for f in fs}
        return frozenset(used - made - self.done)

    def check(self, op: Op) -> None:
        """Raise `RuleError` unless each dim that has factors is their product."""
        for side, values in ((self.operands, op.operands), (self.results, op.results)):
            if len(side) != len(values):
                raise RuleError(
                    f"rule of {op.kind!r} names {len(side)} values, not {len(values)}"
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
    """Letters per value and dim: `"b(ij),-k"` is (b, (i, j)) and (no letter, k)."""
    return tuple(_parse_value(part.strip()) for part in text.split(",")) if text else ()


def _parse_value(text: str) -> tuple[tuple[str, ...], ...]:
    dims = re.findall(r"\((.*?)\)|(.)", text)
    return tuple(tuple(group or letter.strip("-")) for group, letter in dims)


def einsum_rule(
    letters: str, op: Op, sizes: Mapping[str, int] | None = None, **fields: object
) -> FactorRule:
    """The rule in the notation of einsum: `"bik,bkj->bij"`, with commas between values.

    `-` is a dim that cannot be split, `(ij)` a dim that is a product. The size of a
    letter that occurs only in products must be given in `sizes`. `fields` are those of
    `FactorRule`; they number letters in order of first appearance.
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
    """The rule of an op that cannot be partitioned: no dim has a factor."""
    return FactorRule(
        (),
        tuple(((),) * len(a.shape) for a in op.operands),
        tuple(((),) * len(r.shape) for r in op.results),
        opaque=why,
    )
