"""Sorting: every dim but the sorted one is a batch dim."""

from __future__ import annotations

import math
from typing import cast

from meshwright.program.ir import Op
from meshwright.program.rules.factors import RuleFactors
from meshwright.program.rules.registry import rule
from meshwright.program.rules.rule import FactorRule
from meshwright.program.rules.traits import Trait
from meshwright.program.rules.work import OpWork, log2_rounded_up

_OWN_KERNEL = (Trait.STANDALONE, Trait.EXPENSIVE)


def _sorting_work(op: Op) -> OpWork:
    """A comparison for each element in each of log2 n merges."""
    shape = op.operands[0].shape
    extent = shape[cast(int, op.params["dimension"])]
    return OpWork(math.prod(shape) * log2_rounded_up(extent))


def _selection_work(op: Op) -> OpWork:
    """For each element the comparisons of a search among the k best."""
    num_best = log2_rounded_up(cast(int, op.params["k"]))
    return OpWork(math.prod(op.operands[0].shape) * num_best)


@rule("sort", traits=_OWN_KERNEL, work=_sorting_work)
def sort(op: Op) -> FactorRule:
    """All operands alike: `a-b,a-b->a-b,a-b` for dim 1 of three."""
    return _off_dim(op, op.params["dimension"])


@rule("top_k", traits=_OWN_KERNEL, work=_selection_work)
def top_k(op: Op) -> FactorRule:
    """Values and positions have the operand's letters off the searched dim."""
    return _off_dim(op, op.params["axis"])


@rule("approx_top_k", traits=_OWN_KERNEL)
def approx_top_k(op: Op) -> FactorRule:
    """As `top_k`; the searched dim may be counted from behind."""
    return _off_dim(op, op.params["reduction_dimension"])


def _off_dim(op: Op, dim: object) -> FactorRule:
    """All operands and results share their letters; `dim` has none."""
    shape = op.operands[0].shape
    searched = cast(int, dim) % len(shape)
    factors = RuleFactors()
    dims = tuple(
        factors.one(extent) if d != searched else () for d, extent in enumerate(shape)
    )
    return factors.rule((dims,) * len(op.operands), (dims,) * len(op.results))
