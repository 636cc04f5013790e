"""Reshape: the letters that dims on both sides have in common.

Read major to minor, the dims of operand and result multiply up to the same number of
elements. Where one side's dim is a product of the other side's, they share letters:
`(ab)c->a(bc)`. Where two dims share only a divisor, the major part has a letter and the
rest cannot be cut.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from meshwright.program.ir import Op
from meshwright.program.rules.factors import Factor, RuleFactors, with_result_shape
from meshwright.program.rules.registry import rule
from meshwright.program.rules.rule import FactorRule, Shape
from meshwright.program.rules.traits import Trait


@rule("reshape", traits=(Trait.ALIASES_OPERAND,))
def reshape(op: Op) -> FactorRule:
    """`(ab)c->a(bc)`, with the operand's dims taken in the order `dimensions`."""
    params: Any = op.params
    (operand,), (result,) = op.operands, op.results
    order = params["dimensions"]
    order = range(len(operand.shape)) if order is None else [int(d) for d in order]
    factors = RuleFactors()
    source, target = common_factors(
        factors, tuple(operand.shape[d] for d in order), result.shape
    )
    dims: list[Factor] = [()] * len(operand.shape)
    for d, letters in zip(order, source, strict=True):
        dims[d] = letters
    return factors.rule(
        [tuple(dims)],
        [tuple(target)],
        linear=(frozenset({0}),),
        local_params=with_result_shape("new_sizes"),
    )


@dataclass
class _Side:
    """The dims of one shape, eaten up major to minor.

    left: what the letters given so far leave of dim `at`.
    """

    shape: Shape
    letters: list[Factor] = field(default_factory=list)
    at: int = -1
    left: int = 1

    def __post_init__(self) -> None:
        self.letters = [()] * len(self.shape)
        self.advance()

    def advance(self) -> None:
        """Go to the next dim that is not used up; `left` is 1 after the last."""
        while self.left == 1 and self.at + 1 < len(self.shape):
            self.at += 1
            self.left = self.shape[self.at]

    def give(self, factor: Factor, size: int) -> None:
        """Put a factor of that size into the dim."""
        self.letters[self.at] += factor
        self.left //= size

    def close(self, factors: RuleFactors) -> None:
        """Complete a dim that has letters already; one without stays without."""
        if self.letters[self.at]:
            self.letters[self.at] += factors.never_cut(self.left)
        self.left = 1
        self.advance()


def common_factors(
    factors: RuleFactors, source: Shape, target: Shape
) -> tuple[list[Factor], list[Factor]]:
    """Letters per dim of two shapes of equally many elements, in row-major order."""
    a, b = _Side(source), _Side(target)
    if math.prod(source) == 0:
        return a.letters, b.letters
    while a.left > 1 and b.left > 1:
        shared = math.gcd(a.left, b.left)
        if shared > 1:
            factor = factors.one(shared)
            a.give(factor, shared)
            b.give(factor, shared)
        if a.left > 1 and b.left > 1:
            _skip_to_boundary(factors, a, b)
        a.advance()
        b.advance()
    return a.letters, b.letters


def _skip_to_boundary(factors: RuleFactors, a: _Side, b: _Side) -> None:
    """Pass dims without letters until both sides have passed equally many elements."""
    passed_a, passed_b = a.left, b.left
    a.close(factors)
    b.close(factors)
    while passed_a != passed_b:
        if passed_a < passed_b:
            passed_a *= a.left
            a.close(factors)
        else:
            passed_b *= b.left
            b.close(factors)
