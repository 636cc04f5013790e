"""Compilation of the solver before its first use: `python -m` this module.

Numba caches its machine code in `__pycache__`, so compilation takes time only once.
Otherwise the first solve compiles within its budget.
"""

from contextlib import suppress

import numpy as np

from meshwright.errors import AssignmentError
from meshwright.search.assignment.problem.assignment import Assignment
from meshwright.search.assignment.solve import SolveOptions, solve

_SIZES = ((12, 3), (120, 12), (400, 24))
"""Nodes and choices of three problems: presolve solves the first, one thread the
second, two threads the third."""


def warm(rounds: int | None = None) -> None:
    """Solve small problems of each kind, with and without a memory limit.

    rounds: as in `SolveOptions`. With a limit and code compiled earlier this takes no
    time.
    """
    for num_nodes, num_choices in _SIZES:
        for limit in (None, 0.6 * num_nodes):
            with suppress(AssignmentError):  # out of time, but compiled
                solve(
                    _problem(num_nodes, num_choices, limit),
                    2.0,
                    options=SolveOptions(rounds=rounds),
                )
    with suppress(AssignmentError):  # infeasible: compiles the repair of dives
        solve(_clique(), 2.0, options=SolveOptions(rounds=rounds))


def _clique() -> Assignment:
    """A clique of four nodes that must all differ, with three choices: infeasible."""
    unlike = np.where(np.eye(3, dtype=bool), np.inf, 0.0)
    edges = [(i, j, unlike) for j in range(4) for i in range(j)]
    return Assignment.of([[0.0, 1.0, 2.0]] * 4, edges)


def _problem(num_nodes: int, num_choices: int, limit: float | None) -> Assignment:
    """A random chain with extra edges; choice 0 of all nodes is always feasible."""
    rng = np.random.default_rng(0)
    costs = rng.uniform(0, 1, (num_nodes, num_choices))
    edges: list[tuple[int, int, np.ndarray]] = []
    for node in range(1, num_nodes):
        for other in {node - 1, int(rng.integers(node))}:
            table = rng.uniform(0, 1, (num_choices, num_choices))
            table[rng.uniform(0, 1, table.shape) < 0.3] = np.inf
            table[0, 0] = 0.5
            edges.append((other, node, table))
    usages = rng.uniform(0, 1, (num_nodes, num_choices))
    usages[:, 0] = 0.1
    lives = [(i, i + num_nodes // 2) for i in range(num_nodes)]
    return Assignment.of(
        costs.tolist(), edges, usages=usages.tolist(), lives=lives, limit=limit
    )


if __name__ == "__main__":
    warm()
