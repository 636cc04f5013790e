"""Fourier transforms: batch dims are split, the transformed (last) dims are not."""

from __future__ import annotations

import math
from typing import cast

from meshwright.program.ir import Op
from meshwright.program.rules.factors import RuleFactors
from meshwright.program.rules.registry import OpWork, Trait, log2_rounded_up, rule
from meshwright.program.rules.rule import FactorRule


def _work(op: Op) -> OpWork:
    """5 n log2 n for a complex transform of length n, 3 n log2 n for a real one."""
    lengths = cast(tuple[int, ...], op.params["fft_lengths"])
    length = math.prod(lengths)
    sides = (*op.operands, *op.results)
    real = [a.shape for a in sides if not a.dtype.startswith("complex")]
    batch = math.prod(real[0] if real else op.operands[0].shape) // length
    return OpWork(batch * length * log2_rounded_up(length) * (3 if real else 5))


@rule("fft", traits=(Trait.STANDALONE, Trait.EXPENSIVE), work=_work)
def fft(op: Op) -> FactorRule:
    """The rule `ab-->ab--` of a transform over two dims, of any of the four types."""
    shape = op.operands[0].shape
    lengths = cast(tuple[int, ...], op.params["fft_lengths"])
    factors = RuleFactors()
    dims = tuple(factors.each(shape, range(len(shape) - len(lengths), len(shape))))
    return factors.rule((dims,), (dims,), linear=(frozenset({0}),))
