"""Factor rules of sorting and top-k: all dims but the sorted one can be sharded."""

import math

from meshwright.program.ir import Op
from meshwright.program.rules.factors import same_dims_rule
from meshwright.program.rules.registry import OpWork, Trait, log2_rounded_up, rule
from meshwright.program.rules.rule import FactorRule

_OWN_KERNEL = (Trait.STANDALONE, Trait.EXPENSIVE)


def _sorting_work(op: Op) -> OpWork:
    """The work of a sort: one comparison per element in each of log2 n merges."""
    shape = op.operands[0].shape
    extent = shape[op.params["dimension"]]
    return OpWork(math.prod(shape) * log2_rounded_up(extent))


def _selection_work(op: Op) -> OpWork:
    """The work of top-k: for each element, a binary search among the k best so far."""
    num_best = log2_rounded_up(op.params["k"])
    return OpWork(math.prod(op.operands[0].shape) * num_best)


@rule("sort", traits=_OWN_KERNEL, work=_sorting_work)
def sort(op: Op) -> FactorRule:
    """The factor rule `a-,a-->a-,a-` of a sort of two arrays along dim 1.

    Dim a can be sharded, the sorted dim `-` cannot.
    """
    return _off_dim(op, op.params["dimension"])


@rule("top_k", traits=_OWN_KERNEL, work=_selection_work)
def top_k(op: Op) -> FactorRule:
    """The factor rule `a-->a-,a-` of top-k, which returns values and positions.

    Dim a can be sharded, the searched last dim `-` cannot.
    """
    return _off_dim(op, op.params["axis"])


@rule("approx_top_k", traits=_OWN_KERNEL)
def approx_top_k(op: Op) -> FactorRule:
    """The factor rule of approximate top-k, the same as of `top_k`.

    The parameter with the searched dim may be negative.
    """
    return _off_dim(op, op.params["reduction_dimension"])


def _off_dim(op: Op, dim: int) -> FactorRule:
    """The factor rule in which all values have equal dims, and `dim` is not split."""
    return same_dims_rule(op, (dim % len(op.operands[0].shape),))
