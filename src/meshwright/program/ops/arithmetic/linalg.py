"""Factor rules of dense linear algebra and Fourier transforms, split over batch dims.

The last dims of each operand are one matrix, vector or signal; the dims before are
batch dims. Solves are also split over the dim that lists the right-hand sides. In rules
such as `a--->a--`, letters are dims that can be sharded and `-` is a dim that cannot.
"""

import math

from meshwright.program.ir import Op
from meshwright.program.rules.factors import (
    RuleFactors,
    leading_dims_rule,
    padded_dims,
    same_dims_rule,
)
from meshwright.program.rules.registry import CountWork, OpWork, Trait, describe, rule
from meshwright.program.rules.rule import FactorRule

_OPERAND_RANKS: dict[str, tuple[int, ...]] = {
    "cholesky": (2,),
    "cholesky_update": (2, 1),
    "eig": (2,),
    "eigh": (2,),
    "hessenberg": (2,),
    "householder_product": (2, 1),
    "lu": (2,),
    "lu_pivots_to_permutation": (1,),
    "ormqr": (2, 1, 2),
    "qr": (2,),
    "schur": (2,),
    "svd": (2,),
    "symmetric_product": (2, 2),
    "triangular_solve": (2, 2),
    "tridiagonal": (2,),
    "tridiagonal_solve": (1, 1, 1, 2),
}
"""The number of dims of each operand that belong to one matrix or vector."""

_RIGHT_HAND_SIDE = {"ormqr": 2, "triangular_solve": 1, "tridiagonal_solve": 3}
"""The position of the operand in which the op is linear; the result has its shape."""


@rule(*(kind for kind in _OPERAND_RANKS if kind not in _RIGHT_HAND_SIDE))
def factorize(op: Op) -> FactorRule:
    """The factor rule `ab--->ab--,ab-` of factorizations of batches of matrices.

    The batch dims a and b can be sharded, the dims `-` of the matrices cannot.
    """
    rank = len(op.operands[0].shape) - _OPERAND_RANKS[op.kind][0]
    return leading_dims_rule(op, rank)


@rule(*_RIGHT_HAND_SIDE)
def solve(op: Op) -> FactorRule:
    """The factor rule `a--,a-k->a-k` of linear solves.

    Batch dims a and the right-hand sides k of one matrix can be sharded, dims `-`
    cannot.
    """
    right = _RIGHT_HAND_SIDE[op.kind]
    shape = op.operands[right].shape
    factors = RuleFactors()
    batch = factors.each(shape[:-2])
    system = factors.one(shape[-1] if _are_columns(op) else shape[-2])
    last = ((), system) if _are_columns(op) else (system, ())
    operands = [padded_dims(batch, a) for a in op.operands]
    operands[right] = (*batch, *last)
    linear = (frozenset({right}),)
    return factors.rule(operands, (operands[right],), linear=linear)


def _are_columns(op: Op) -> bool:
    """Whether right-hand sides are columns, as in A X = B.

    Else they are rows of X A = B.
    """
    return bool(op.params.get("left_side", op.params.get("left", True)))


def _cubic(numerator: int, denominator: int) -> CountWork:
    """A count of `numerator / denominator` n^3 operations per matrix of side n."""

    def count(op: Op) -> OpWork:
        *batch, rows, columns = op.operands[0].shape
        cube = rows * columns * min(rows, columns)
        return OpWork(math.prod(batch) * cube * numerator // denominator)

    return count


def _substitution(op: Op) -> OpWork:
    """The work of a triangular solve: n^2 operations for each right-hand side."""
    return OpWork(op.operands[0].shape[-1] * math.prod(op.operands[1].shape))


_WORK: dict[str, CountWork] = {
    "cholesky": _cubic(1, 3),
    "eig": _cubic(25, 1),
    "eigh": _cubic(9, 1),
    "householder_product": _cubic(4, 3),
    "lu": _cubic(2, 3),
    "qr": _cubic(4, 3),
    "svd": _cubic(20, 1),
    "triangular_solve": _substitution,
}
"""Operation counts of LAPACK's algorithms (Golub and Van Loan, Matrix Computations)."""

for _kind, _count in _WORK.items():
    describe(_kind, work=_count)

describe(*_WORK, "schur", traits=(Trait.EXPENSIVE, Trait.STANDALONE))
describe("tridiagonal_solve", traits=(Trait.STANDALONE,))


def _work(op: Op) -> OpWork:
    """The operations of a Fourier transform of length n.

    They are 5 n log2 n for a complex transform and 3 n log2 n for a real one.
    """
    lengths: tuple[int, ...] = op.params["fft_lengths"]
    length = math.prod(lengths)
    sides = (*op.operands, *op.results)
    real = [a.shape for a in sides if not a.dtype.startswith("complex")]
    steps = max(1, math.ceil(math.log2(max(length, 2))))
    batch = math.prod(real[0] if real else op.operands[0].shape) // length
    return OpWork(batch * length * steps * (3 if real else 5))


@rule("fft", traits=(Trait.STANDALONE, Trait.EXPENSIVE), work=_work)
def fft(op: Op) -> FactorRule:
    """The factor rule `ab-->ab--` of Fourier transforms over the last dims.

    The batch dims a and b can be sharded. The rule is the same for all four types.
    """
    shape = op.operands[0].shape
    lengths: tuple[int, ...] = op.params["fft_lengths"]
    transformed = range(len(shape) - len(lengths), len(shape))
    return same_dims_rule(op, transformed, linear=(frozenset({0}),))
