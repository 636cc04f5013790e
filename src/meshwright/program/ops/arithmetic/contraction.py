"""Factor rules of matrix products: batch, free and contracted dims can be split.

In a rule such as `bik,bkj->bij`, letters are dims that can be sharded. To split a
contracted dim (k) gives partial results, which a collective sums.
"""

import math
from collections.abc import Sequence
from typing import Any

from meshwright.program.ir import Op
from meshwright.program.rules.factors import Factor, RuleFactors, can_sum, is_inexact
from meshwright.program.rules.registry import OpWork, Trait, rule
from meshwright.program.rules.rule import Dims, FactorRule, Shape, opaque_rule

_EITHER = (frozenset({0}), frozenset({1}))


def _product_work(op: Op) -> OpWork:
    """The work of a `dot_general`: two operations for each product that is summed."""
    (contracted, _), _ = op.params["dimension_numbers"]
    summed = math.prod(op.operands[0].shape[d] for d in contracted)
    return OpWork(2 * math.prod(op.results[0].shape) * summed)


@rule("dot_general", traits=(Trait.CONTRACTION, Trait.EXPENSIVE), work=_product_work)
def dot_general(op: Op) -> FactorRule:
    """The factor rule of `dot_general`, such as `bik,bkj->bij`.

    Each letter is a dim that can be sharded. Any choice of batch, free and contracted
    dims works.
    """
    factors = RuleFactors()
    left, right, result = product_dims(
        factors, op, op.params["dimension_numbers"], can_sum(op.results[0].dtype)
    )
    return factors.rule([left, right], [result], linear=product_linear(op))


def product_linear(op: Op) -> tuple[frozenset[int], ...]:
    """The operands in which a product is linear, so that they may be partial sums.

    A product is linear in either operand. If integers are widened it is in neither,
    since partial sums would wrap around.
    """
    out = op.results[0].dtype
    plain = all(a.dtype == out or is_inexact(a.dtype) for a in op.operands[:2])
    return _EITHER if plain and can_sum(out) else ()


def product_dims(
    factors: RuleFactors,
    op: Op,
    numbers: Any,
    is_summed: bool,
    grouped: Sequence[int] = (),
) -> tuple[Dims, Dims, Dims]:
    """The factors of the dims of both operands and of the result of a matrix product.

    A factor is a letter of a rule such as `ik,kj->ij`. The result's dims are batch
    dims, free dims of the left and free dims of the right operand.
    is_summed: whether contracted dims may be split.
    grouped: dims of the right operand that get no factor.
    """
    (left_sum, right_sum), (left_batch, right_batch) = numbers
    shape, other = op.operands[0].shape, op.operands[1].shape
    left: list[Factor] = [()] * len(shape)
    right: list[Factor] = [()] * len(other)
    for d, e in zip(left_batch, right_batch, strict=True):
        left[d] = right[e] = factors.one(shape[d])
    for d, e in zip(left_sum, right_sum, strict=True):
        left[d] = right[e] = factors.one(shape[d]) if is_summed else ()
    free = _free(shape, left_batch, left_sum)
    other_free = _free(other, right_batch, (*right_sum, *grouped))
    for d in free:
        left[d] = factors.one(shape[d])
    for e in other_free:
        right[e] = factors.one(other[e])
    result = [left[d] for d in (*left_batch, *free)] + [right[e] for e in other_free]
    return tuple(left), tuple(right), tuple(result)


def _free(shape: Shape, batch: Sequence[int], contracted: Sequence[int]) -> list[int]:
    return [d for d in range(len(shape)) if d not in batch and d not in contracted]


@rule("scaled_dot", traits=(Trait.EXPENSIVE,), work=_product_work)
def scaled_dot(op: Op) -> FactorRule:
    """The factor rule `ik,kj,is,sj->ij` of a product of scaled blocks.

    Letters are dims that can be sharded. A scale applies to a block of the contracted
    dim k, so that k is the product of blocks s and elements.
    """
    return _scaled(op, op.params["dimension_numbers"])


def _matmul_work(op: Op) -> OpWork:
    """The work of a batched matrix product, whose operands have their last dims summed."""
    return OpWork(2 * math.prod(op.results[0].shape) * op.operands[0].shape[-1])


@rule("scaled_matmul_wrapper", traits=(Trait.EXPENSIVE,), work=_matmul_work)
def scaled_matmul(op: Op) -> FactorRule:
    """The factor rule `bik,bjk,bis,bjs->bij` of a batched product of scaled blocks.

    Letters are dims that can be sharded; k is the product of blocks s and elements.
    """
    return _scaled(op, (((2,), (2,)), ((0,), (0,))))


def _scaled(op: Op, numbers: Any) -> FactorRule:
    """The factor rule of a matrix product whose operands have a scale per block."""
    factors = RuleFactors()
    sides = product_dims(factors, op, numbers, is_summed=False)
    values, result = [list(dims) for dims in (*sides[:2], *sides[:2])], sides[2]
    for d, e in zip(*numbers[0], strict=True):
        counts = (op.operands[2].shape[d], op.operands[3].shape[e])
        split = _blocks(factors, op.operands[0].shape[d], *counts)
        values[0][d] = values[1][e] = split[0]
        values[2][d], values[3][e] = split[1:]
    for i, summed in enumerate(numbers[0]):
        shapes = (op.operands[2 + i].shape, op.operands[i].shape)
        pairs = enumerate(zip(*shapes, strict=True))
        if any(n != m for d, (n, m) in pairs if d not in summed):
            return opaque_rule(op, f"the scales of {op.kind!r} are padded")
    return factors.rule([tuple(v) for v in values], [result])


def _blocks(
    factors: RuleFactors, extent: int, left: int, right: int
) -> tuple[Factor, Factor, Factor]:
    """The factors of a contracted dim, of its left scales and of its right scales.

    The dim is the product of blocks of the coarser scale, blocks of the finer scale
    within them, and elements. A device keeps at least two elements per scale, the
    fewest that JAX accepts.
    """
    coarse, fine = sorted((left, right))
    if not coarse or fine % coarse or extent % fine:
        return (), (), ()
    major = factors.one(coarse) if coarse > 1 else ()
    middle = factors.one(fine // coarse) if fine > coarse else ()
    minor = factors.one(extent // fine, least=2) if extent > fine else ()
    both = major + middle
    left_scale = major if left == coarse else both
    right_scale = major if right == coarse else both
    return both + minor, left_scale, right_scale
