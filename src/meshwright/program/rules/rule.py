"""Factor rules: how the dims of an op's operands and results correspond.

A rule names dims by letters (factors), as einsum does and as Shardy's `OpShardingRule`
does: `"bik,bkj->bij"` is a batched matrix product. Splitting a factor over devices
splits every dim that has its letter. A factor in operands and results is *parallel*. A
factor in operands alone is a *reduction*: after splitting it, devices hold partial
results. A factor in results alone is *new*. A dim without a letter (written `-`) cannot
be split. A dim may be the product of several factors, major to minor (`"(ab)c->a(bc)"`
is a reshape). `partitioner/propagate/legality.py` decides whether a mesh axis may split
a factor; it may not, for instance, if the axis size does not divide the factor.

Propagation, lowering, cost models and tests read these rules, so that none of them
needs code for a particular op. The docstring of the package `program/rules` says how to
add an op.
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
"""The factors of each dim of one value, as factor numbers from major to minor.

A dim that cannot be split has the empty tuple.
"""

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpCut:
    """The partitioning of one op: for each factor the mesh axes that split it.

    axes: for each factor (letter of the op's rule), the mesh axes that split it.
    parts: for each factor, the number of parts, which is the product of those axes'
        sizes.
    """

    axes: tuple[tuple[str, ...], ...]
    parts: tuple[int, ...]

    def is_cut(self, factor: int) -> bool:
        """Whether at least one mesh axis splits the factor with this number."""
        return bool(self.axes[factor])


LocalParams = Callable[[Op, tuple[Shape, ...], tuple[Shape, ...]], Mapping[str, object]]
"""A function that returns the parameters of a primitive for one device's part of an op.

Its arguments are the op, the local operand shapes and the local result shapes. A rule
needs such a function if the primitive's parameters contain shapes, as those of
`reshape` do.
"""

Expand = Callable[["Builder", Op, tuple[Any, ...], OpCut], tuple[Value, ...]]
"""A function that writes one device's part of an op, and returns the local results.

Its arguments are the builder that takes the new ops, the op, the local operands and the
op's partitioning. A rule needs such a function if the part of the op on one device is
not the same primitive on smaller shapes.
"""


@dataclass(frozen=True)
class FactorRule:
    """The factor rule of one op: which dims of operands and results are split together.

    sizes: extent of each factor (each letter, in the einsum notation of this module).
    operands, results: for each value and each of its dims, the numbers of the dim's
        factors.
    monoid: the operation that combines the devices' partial results after a reduction
        factor has been split.
    linear: sets of operands. If all operands of one set are partial sums and all other
        operands are complete, the op may be applied to the partial sums; its result is
        partial too.
    special: factors that only `expand` can split, because devices must exchange data or
        run another op (Shardy: permutation and need-replication factors).
    least: for some factors, the smallest size that one device's part may have (default
        1).
    local_params, expand: functions that write one device's part of the op, if that part
        is not the same op on smaller shapes.
    is_zero: whether every result is zero, whatever the operands are.
    done: factors over which the op itself reduces across devices, as `shard_map` does,
        so that splitting them leaves no partial result.
    opaque: the reason why the op cannot be partitioned at all ("" if it can).
    is_composite: whether no primitive computes the op, so that `expand` always writes it.
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
    is_composite: bool = False

    @cached_property
    def reductions(self) -> frozenset[int]:
        """Factors that are in operands but in no result; splitting them gives partial sums.

        Factors in `done` are left out: the op completes their sums across devices by
        itself.
        """
        used = {f for dims in self.operands for fs in dims for f in fs}
        made = {f for dims in self.results for fs in dims for f in fs}
        return frozenset(used - made - self.done)

    def check(self, op: Op) -> None:
        """Raise `RuleError` if the rule does not fit the op's operands and results.

        The number of values and of dims must agree, and the factors of each dim must
        multiply to its extent.
        """
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
    """Letters per value and dim: `"b(ij),-k"` is parsed to (b, (i, j)) and ((), k)."""
    return tuple(_parse_value(part.strip()) for part in text.split(",")) if text else ()


def _parse_value(text: str) -> tuple[tuple[str, ...], ...]:
    dims = re.findall(r"\((.*?)\)|(.)", text)
    return tuple(tuple(group or letter.strip("-")) for group, letter in dims)


def einsum_rule(
    letters: str, op: Op, sizes: Mapping[str, int] | None = None, **fields: object
) -> FactorRule:
    """The factor rule in the notation of einsum, such as `"bik,bkj->bij"`.

    Commas separate values. `-` is a dim that cannot be split, `(ij)` a dim that is the
    product of two factors. `sizes` must have the extent of each letter that occurs only
    in products. `fields` are further fields of `FactorRule`; they refer to a letter by
    its number in order of first appearance.
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


def local_result_avals(
    op: Op, operands: tuple[Shape, ...], results: tuple[Shape, ...]
) -> Mapping[str, object]:
    """Parameters of the `ffi_call` that computes one device's part of the results."""
    del operands
    avals: Any = op.params["result_avals"]
    local = (a.update(shape=shape) for a, shape in zip(avals, results, strict=True))
    return {**op.params, "result_avals": tuple(local)}


def opaque_rule(op: Op, why: str) -> FactorRule:
    """The rule of an op that cannot be partitioned: no dim has a factor.

    `why` says the reason.
    """
    return FactorRule(
        (),
        tuple(((),) * len(a.shape) for a in op.operands),
        tuple(((),) * len(r.shape) for r in op.results),
        opaque=why,
    )
