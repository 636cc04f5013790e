"""Generic search algorithms, which know nothing of tensors or devices.

There are three kinds of input. A `Problem` (states, actions, costs) is searched by an
engine such as Monte Carlo tree search, which gives a `Result`. An `Assignment` (an
integer program) is solved by `assignment`, which gives a `Solution`. A space of
candidates with expensive figures is searched by `trials`, which gives a `Front`. Begin
reading at `loop/problem.py` and `loop/engine.py`; `engines` has one search algorithm per
file.
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
