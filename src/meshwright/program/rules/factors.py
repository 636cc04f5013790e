"""Tools for writing factor rules whose letters depend on shapes, dtypes or parameters.

Factors are the letters of a rule such as `ik,kj->ij`; inside a `FactorRule` they are
numbers.
"""

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshwright.program.ir import Atom, Op
from meshwright.program.rules.rule import Dims, FactorRule, LocalParams, OpCut, Shape

INT32_MAX = 2**31 - 1
"""The largest extent of an indexed dim that can be split, since positions are int32."""

Factor = tuple[int, ...]
"""The factor numbers of one dim: one element of `Dims`.

Empty if the dim cannot be split.
"""


@dataclass
class RuleFactors:
    """Numbers the factors (letters) of a rule while the rule is being written.

    sizes: extent of each factor so far.
    least: for some factors, the smallest size that one device's part may have.
    """

    sizes: list[int] = field(default_factory=list)
    least: dict[int, int] = field(default_factory=dict)

    def one(self, size: int, least: int = 1) -> Factor:
        """Add a factor of extent `size`; each part of it has at least size `least`."""
        index = len(self.sizes)
        self.sizes.append(size)
        if least > 1:
            self.least[index] = least
        return (index,)

    def each(self, shape: Shape, without: Container[int] = ()) -> list[Factor]:
        """Add a factor for each dim of `shape`, except the dims in `without`."""
        return [() if d in without else self.one(n) for d, n in enumerate(shape)]

    def indivisible(self, size: int) -> Factor:
        """Add a factor that cannot be split and completes a dim; none for size 1.

        It is needed because the factors of a dim must multiply to the dim's extent.
        """
        return self.one(size, least=size) if size > 1 else ()

    def rule(
        self, operands: Sequence[Dims], results: Sequence[Dims], **fields: Any
    ) -> FactorRule:
        """The rule over all factors so far.

        `fields` are more fields of `FactorRule`.
        """
        return FactorRule(
            tuple(self.sizes),
            tuple(operands),
            tuple(results),
            least=dict(self.least) or None,
            **fields,
        )


def same_dims_rule(op: Op, without: Container[int] = (), **fields: Any) -> FactorRule:
    """The factor rule `ab,ab->ab`, by which all operands and results have the same dims.

    Factor i is dim i if no dim is left out.
    without: dims that cannot be split.
    fields: more fields of `FactorRule`.
    """
    factors = RuleFactors()
    values = (*op.operands, *op.results)
    dims = tuple(factors.each(values[0].shape, without))
    return factors.rule([dims] * len(op.operands), [dims] * len(op.results), **fields)


def leading_dims_rule(op: Op, count: int) -> FactorRule:
    """The factor rule `ab-,ab->ab--`: the first `count` dims of all values are the same.

    The other dims cannot be split.
    """
    factors = RuleFactors()
    leading = factors.each(op.results[0].shape[:count])
    return factors.rule(
        [padded_dims(leading, operand) for operand in op.operands],
        [padded_dims(leading, result) for result in op.results],
    )


def padded_dims(leading: Sequence[Factor], value: Atom) -> Dims:
    """The `Dims` of a value whose first dims have the factors `leading`.

    The other dims cannot be split.
    """
    return (*leading, *((),) * (len(value.shape) - len(leading)))


def no_dims(value: Atom) -> Dims:
    """The `Dims` of a value of which no dim can be split."""
    return ((),) * len(value.shape)


def local_shape(shape: Shape, dims: Dims, cut: OpCut) -> Shape:
    """The shape of one device's part of a value whose dims have the factors `dims`."""
    local = list(shape)
    for d, factors in enumerate(dims):
        for f in factors:
            local[d] //= cut.parts[f]
    return tuple(local)


def all_operands(op: Op) -> tuple[frozenset[int], ...]:
    """The `linear` field for an op that is linear in all operands jointly: `add`.

    If all operands are partial sums, adding them gives a partial sum.
    """
    return (frozenset(range(len(op.operands))),)


def with_result_shape(name: str) -> LocalParams:
    """The `local_params` of primitives whose parameter `name` is the result's shape.

    On one device, the parameter becomes the shape of that device's part of the result.
    """

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
    """Whether the dtype is a float of at most 8 bits or an integer below 8 bits."""
    return re.match(r"float[468]_|u?int[124]$", dtype) is not None


def is_key(dtype: str) -> bool:
    """Whether the dtype is that of typed PRNG keys, such as `key<fry>`."""
    return dtype.startswith("key<")


def can_sum(dtype: str) -> bool:
    """Whether devices may hold addends in this dtype that a collective sums later.

    Bools and PRNG keys have no sum, and narrow dtypes would lose too much precision.
    """
    return not (dtype in ("bool", "float0") or is_key(dtype) or is_low_precision(dtype))
