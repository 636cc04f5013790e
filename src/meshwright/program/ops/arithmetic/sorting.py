"""Sorting and top-k: all dims except the sorted one are batch dims."""

import math
from typing import cast

from meshwright.program.ir import Op
from meshwright.program.rules.factors import RuleFactors
from meshwright.program.rules.registry import OpWork, Trait, log2_rounded_up, rule
from meshwright.program.rules.rule import FactorRule

_OWN_KERNEL = (Trait.STANDALONE, Trait.EXPENSIVE)


def _sorting_work(op: Op) -> OpWork:
    """A comparison for each element in each of log2 n merges."""
    shape = op.operands[0].shape
    extent = shape[cast(int, op.params["dimension"])]
    return OpWork(math.prod(shape) * log2_rounded_up(extent))


def _selection_work(op: Op) -> OpWork:
    """Comparisons of a binary search among the k best, for each element."""
    num_best = log2_rounded_up(cast(int, op.params["k"]))
    return OpWork(math.prod(op.operands[0].shape) * num_best)


@rule("sort", traits=_OWN_KERNEL, work=_sorting_work)
def sort(op: Op) -> FactorRule:
    """The rule `a-b,a-b->a-b,a-b` for a sort of two arrays along dim 1."""
    return _off_dim(op, op.params["dimension"])


@rule("top_k", traits=_OWN_KERNEL, work=_selection_work)
def top_k(op: Op) -> FactorRule:
    """The rule `a-->a-,a-` for values and positions along the last dim."""
    return _off_dim(op, op.params["axis"])


@rule("approx_top_k", traits=_OWN_KERNEL)
def approx_top_k(op: Op) -> FactorRule:
    """The rule of `top_k`; the dim may be negative."""
    return _off_dim(op, op.params["reduction_dimension"])


def _off_dim(op: Op, dim: object) -> FactorRule:
    """The rule by which all values share their letters, and `dim` has none."""
    shape = op.operands[0].shape
    searched = cast(int, dim) % len(shape)
    factors = RuleFactors()
    dims = tuple(factors.each(shape, (searched,)))
    return factors.rule((dims,) * len(op.operands), (dims,) * len(op.results))
