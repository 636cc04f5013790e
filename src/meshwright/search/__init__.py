"""Searches that do not know what they search: problems, engines, integer programs."""

from meshwright.search.annealing import Annealing
from meshwright.search.beam import Beam
from meshwright.search.budget import Budget, Improvement, Result
from meshwright.search.engine import Engine, search
from meshwright.search.evolution import Evolution
from meshwright.search.exhaustive import Exhaustive
from meshwright.search.goals import Goal, search_goals
from meshwright.search.mcts import Mcts
from meshwright.search.problem import Prior, Problem
from meshwright.search.sampling import Sampling

__all__ = [
    "Annealing",
    "Beam",
    "Budget",
    "Engine",
    "Evolution",
    "Exhaustive",
    "Goal",
    "Improvement",
    "Mcts",
    "Prior",
    "Problem",
    "Result",
    "Sampling",
    "search",
    "search_goals",
]
