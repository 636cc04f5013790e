"""Fourier transforms: the transformed dims, which are the last ones, stay whole."""

from __future__ import annotations

from typing import cast

from meshwright.program.ir import Op
from meshwright.program.rules.factors import RuleFactors
from meshwright.program.rules.registry import rule
from meshwright.program.rules.rule import FactorRule


@rule("fft")
def fft(op: Op) -> FactorRule:
    """`ab-->ab--` for a transform over two dims, of any of the four types."""
    shape = op.operands[0].shape
    lengths = cast(tuple[int, ...], op.params["fft_lengths"])
    num_batch = len(shape) - len(lengths)
    factors = RuleFactors()
    dims = (*factors.each(shape[:num_batch]), *((),) * len(lengths))
    return factors.rule((dims,), (dims,), linear=(frozenset({0}),))
