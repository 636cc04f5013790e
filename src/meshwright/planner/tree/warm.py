"""Compilation of tree search before its first use: `python -m` this module.

Numba caches its machine code in `__pycache__`, so that compilation takes time only once
(25 s of one core). Otherwise the first search compiles within its budget.
"""

from typing import Any

import numpy as np

from meshwright.machine import Mesh, load_machine
from meshwright.planner.solve.space import Space
from meshwright.planner.tree.tree_search import make_engine, make_problem, search_cuts
from meshwright.program.capture import capture
from meshwright.search import Budget


def warm() -> None:
    """Search a plan for one matrix product, so that all functions are compiled."""
    x = np.zeros((8, 8), np.float32)
    captured = capture(_product, (x, x))
    space = Space(captured, load_machine("tpu-v5e", 4))
    problem = make_problem(space, Mesh({"data": 2, "model": 2}))
    search_cuts(problem, make_engine(problem, 0), Budget(trials=10))


def _product(x: Any, w: Any) -> Any:
    return x @ w


if __name__ == "__main__":
    warm()
