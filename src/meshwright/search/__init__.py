"""Generic search: knows no tensors, only search problems and integer programs.

Input: a `Problem` (states, actions, costs) or an `Assignment` (an integer program).
Output: a `Result` or a `Solution`. Begin reading at `loop/problem.py` and
`loop/engine.py`; `engines` has one search algorithm per file; `assignment` is the
solver of integer programs.
"""

from meshwright.search.engines.annealing import Annealing
from meshwright.search.engines.beam import Beam
from meshwright.search.engines.evolution import Evolution
from meshwright.search.engines.exhaustive import Exhaustive
from meshwright.search.engines.mcts import Mcts
from meshwright.search.engines.sampling import Sampling
from meshwright.search.engines.surrogate import Surrogate
from meshwright.search.loop.engine import Budget, Engine, Improvement, Result, search
from meshwright.search.loop.goals import Goal, search_goals
from meshwright.search.loop.problem import Prior, Problem

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
    "Surrogate",
    "search",
    "search_goals",
]
