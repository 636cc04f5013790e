"""The factor rule of reshapes: factors that dims of operand and result share.

Both shapes have the same number of elements. Dims are compared major to minor. If a dim
of one shape is a product of dims of the other, they share factors: `(ab)c->a(bc)`, in
which letters can be split over devices. If two dims have only a divisor in common,
their major part is a factor and the rest cannot be split.
"""

import math
from dataclasses import dataclass, field

from meshwright.program.ir import Op
from meshwright.program.rules.factors import Factor, RuleFactors, with_result_shape
from meshwright.program.rules.registry import Trait, rule
from meshwright.program.rules.rule import FactorRule, Shape


@rule("reshape", traits=(Trait.ALIASES_OPERAND,))
def reshape(op: Op) -> FactorRule:
    """The factor rule of a reshape, such as `(ab)c->a(bc)`.

    Each letter is a factor that can be sharded; (ab) is a dim that is the product of
    two. The operand's dims are taken in the order of the parameter `dimensions`.
    """
    (operand,), (result,) = op.operands, op.results
    order = op.params["dimensions"]
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
    """The operand's or the result's shape, while factors are assigned to its dims.

    letters: the factors of each dim so far.
    at: the dim that gets the next factor.
    left: the extent of that dim that has no factor yet.
    """

    shape: Shape
    letters: list[Factor] = field(default_factory=list)
    at: int = -1
    left: int = 1

    def __post_init__(self) -> None:
        self.letters = [()] * len(self.shape)
        self.advance()

    def advance(self) -> None:
        """Go to the next dim that still has extent without a factor.

        After the last dim, `left` is 1.
        """
        while self.left == 1 and self.at + 1 < len(self.shape):
            self.at += 1
            self.left = self.shape[self.at]

    def give(self, factor: Factor, size: int) -> None:
        """Append a factor of extent `size` to the current dim."""
        self.letters[self.at] += factor
        self.left //= size

    def close(self, factors: RuleFactors) -> None:
        """Complete the current dim by a factor that cannot be split, and go on.

        A dim without any factor stays without.
        """
        if self.letters[self.at]:
            self.letters[self.at] += factors.indivisible(self.left)
        self.left = 1
        self.advance()


def common_factors(
    factors: RuleFactors, source: Shape, target: Shape
) -> tuple[list[Factor], list[Factor]]:
    """The factors of each dim of two shapes with equally many elements.

    Dims of the two shapes that have a factor in common are split together.
    """
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
    """Close dims of both shapes until both have passed equally many elements."""
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
