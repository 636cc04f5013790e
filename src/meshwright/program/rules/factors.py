"""Numbering the factors of a rule, and what partial sums a dtype can hold."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshwright.program.ir import Atom, Op
from meshwright.program.rules.rule import Dims, FactorRule, LocalParams, OpCut, Shape

Factor = tuple[int, ...]
"""The factors of one dim: what `RuleFactors` hands out, ready to be put into `Dims`."""


@dataclass
class RuleFactors:
    """Hands out new factors while a rule is written, then makes the rule of them."""

    sizes: list[int] = field(default_factory=list)
    least: dict[int, int] = field(default_factory=dict)

    def one(self, size: int, least: int = 1) -> Factor:
        """A new factor, of which a cut must leave at least `least` on a device."""
        index = len(self.sizes)
        self.sizes.append(size)
        if least > 1:
            self.least[index] = least
        return (index,)

    def each(self, shape: Shape) -> list[Factor]:
        """One new factor per dim."""
        return [self.one(n) for n in shape]

    def never_cut(self, size: int) -> Factor:
        """A factor that completes a dim and that no cut may touch; none for size 1."""
        return self.one(size, least=size) if size > 1 else ()

    def rule(
        self, operands: Sequence[Dims], results: Sequence[Dims], **fields: Any
    ) -> FactorRule:
        """The rule over the factors made so far; `fields` are those of `FactorRule`."""
        return FactorRule(
            tuple(self.sizes),
            tuple(operands),
            tuple(results),
            least=dict(self.least) or None,
            **fields,
        )


def no_dims(value: Atom) -> Dims:
    """The dims of a value that stays whole."""
    return ((),) * len(value.shape)


def local_shape(shape: Shape, dims: Dims, cut: OpCut) -> Shape:
    """The shape on one device of a value with these factors."""
    local = list(shape)
    for d, factors in enumerate(dims):
        for f in factors:
            local[d] //= cut.parts[f]
    return tuple(local)


def all_operands(op: Op) -> tuple[frozenset[int], ...]:
    """Linear in all operands together, as `add` and `concatenate` are."""
    return (frozenset(range(len(op.operands))),)


def spelling_result(name: str) -> LocalParams:
    """`local_params` where the parameter `name` spells the result's shape."""

    def local_params(
        op: Op, operands: tuple[Shape, ...], results: tuple[Shape, ...]
    ) -> Mapping[str, object]:
        del operands
        return {**op.params, name: results[0]}

    return local_params


def is_inexact(dtype: str) -> bool:
    """True for real and complex floating point."""
    return dtype.startswith(("float", "bfloat", "complex")) and dtype != "float0"


def is_narrow(dtype: str) -> bool:
    """True for floats of 8 bits or less and integers of less than 8."""
    return re.match(r"float[468]_|u?int[124]$", dtype) is not None


def is_key(dtype: str) -> bool:
    """True for typed PRNG keys."""
    return dtype.startswith("key<")


def can_sum(dtype: str) -> bool:
    """True where terms held in the dtype by several devices add up to the right sum."""
    return not (dtype in ("bool", "float0") or is_key(dtype) or is_narrow(dtype))
