"""Tools for writing rules: numbering of factors, and which dtypes can hold partial sums."""

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshwright.program.ir import Atom, Op
from meshwright.program.rules.rule import Dims, FactorRule, LocalParams, OpCut, Shape

Factor = tuple[int, ...]
"""The factors of one dim, an element of `Dims`."""


@dataclass
class RuleFactors:
    """Numbers the factors of a rule while it is being written, then makes the rule."""

    sizes: list[int] = field(default_factory=list)
    least: dict[int, int] = field(default_factory=dict)

    def one(self, size: int, least: int = 1) -> Factor:
        """A new factor, of which each part must have at least size `least`."""
        index = len(self.sizes)
        self.sizes.append(size)
        if least > 1:
            self.least[index] = least
        return (index,)

    def each(self, shape: Shape, without: Container[int] = ()) -> list[Factor]:
        """One new factor per dim; the dims in `without` get none."""
        return [() if d in without else self.one(n) for d, n in enumerate(shape)]

    def indivisible(self, size: int) -> Factor:
        """A factor that completes a dim and cannot be split; no factor for size 1."""
        return self.one(size, least=size) if size > 1 else ()

    def rule(
        self, operands: Sequence[Dims], results: Sequence[Dims], **fields: Any
    ) -> FactorRule:
        """The rule over all factors so far; `fields` are those of `FactorRule`."""
        return FactorRule(
            tuple(self.sizes),
            tuple(operands),
            tuple(results),
            least=dict(self.least) or None,
            **fields,
        )


def no_dims(value: Atom) -> Dims:
    """The factors of a value's dims if none of them can be split."""
    return ((),) * len(value.shape)


def local_shape(shape: Shape, dims: Dims, cut: OpCut) -> Shape:
    """The shape of one device's part of a value with these factors."""
    local = list(shape)
    for d, factors in enumerate(dims):
        for f in factors:
            local[d] //= cut.parts[f]
    return tuple(local)


def all_operands(op: Op) -> tuple[frozenset[int], ...]:
    """The `linear` of ops that are linear in all operands jointly, as `add` is."""
    return (frozenset(range(len(op.operands))),)


def with_result_shape(name: str) -> LocalParams:
    """The `local_params` of primitives whose parameter `name` is the result's shape."""

    def local_params(
        op: Op, operands: tuple[Shape, ...], results: tuple[Shape, ...]
    ) -> Mapping[str, object]:
        del operands
        return {**op.params, name: results[0]}

    return local_params


def is_inexact(dtype: str) -> bool:
    """Whether the dtype is real or complex floating point."""
    return dtype.startswith(("float", "bfloat", "complex")) and dtype != "float0"


def is_low_precision(dtype: str) -> bool:
    """Whether the dtype is a float of at most 8 bits or an integer of less than 8."""
    return re.match(r"float[468]_|u?int[124]$", dtype) is not None


def is_key(dtype: str) -> bool:
    """Whether the dtype is one of typed PRNG keys."""
    return dtype.startswith("key<")


def can_sum(dtype: str) -> bool:
    """Whether addends that devices hold in this dtype add up to the right sum."""
    return not (dtype in ("bool", "float0") or is_key(dtype) or is_low_precision(dtype))
