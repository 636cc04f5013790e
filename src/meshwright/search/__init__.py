"""Searches that do not know what they search: problems, engines, integer programs."""

from meshwright.search.budget import Budget, Improvement, Result
from meshwright.search.engine import Engine, search
from meshwright.search.mcts import Mcts
from meshwright.search.problem import Prior, Problem

__all__ = [
    "Budget",
    "Engine",
    "Improvement",
    "Mcts",
    "Prior",
    "Problem",
    "Result",
    "search",
]
