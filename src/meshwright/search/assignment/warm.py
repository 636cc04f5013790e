"""Compile the solver before its first use; run with `python -m`.

Numba caches its machine code in `__pycache__`, so compilation takes time only once.
Without this, the first solve compiles within its time budget.
"""

from contextlib import suppress

import numpy as np

from meshwright.errors import AssignmentError
from meshwright.search.assignment.problem.assignment import Assignment
from meshwright.search.assignment.solve import SolveOptions, solve
from meshwright.search.work import REAL_TIME, WorkMeter

_SIZES, _LIMITS = ((12, 3), (120, 12), (400, 24)), (None, 0.6)
"""Problems that are solved without a limit on rounds.

The pairs are numbers of nodes and choices per node: presolve solves the first problem,
one thread the second, two threads the third. Each is solved without a memory limit, and
with a limit of 0.6 per node."""

_SIZES_BY_ROUNDS, _LIMITS_BY_ROUNDS = ((12, 3), (24, 4)), (None, 0.6, 0.3, 0.2)
"""Problems that are solved with a limit on rounds, where no second thread is used.

Presolve solves the first, dives and search the second. The tighter memory limits need
memory prices and repair. Larger problems compile nothing more."""


def warm(rounds: int | None = None) -> None:
    """Solve small problems of each kind, so that numba compiles all functions they use.

    rounds: limit on rounds, as in `SolveOptions`. With a limit only the functions of
        such solves are compiled; if they are in the cache, this takes 0.4 s of one
        core.
    """
    by_time = rounds is None
    sizes, limits = (
        (_SIZES, _LIMITS) if by_time else (_SIZES_BY_ROUNDS, _LIMITS_BY_ROUNDS)
    )
    for num_nodes, num_choices in sizes:
        for share in limits:
            limit = None if share is None else share * num_nodes
            _solve(_problem(num_nodes, num_choices, limit), rounds)
    _solve(_clique(), rounds)  # infeasible: compiles the repair of dives


def _solve(problem: Assignment, rounds: int | None) -> None:
    """Solve a problem within 2 s.

    With a limit on rounds, compilation counts as no time. Errors are ignored.
    """
    meter = REAL_TIME if rounds is None else WorkMeter()
    options = SolveOptions(rounds=rounds)
    with suppress(AssignmentError):  # infeasible or out of time, but compiled
        solve(problem, 2.0, options=options, meter=meter)


def _clique() -> Assignment:
    """An infeasible problem: four nodes with three choices each must all differ."""
    unlike = np.where(np.eye(3, dtype=bool), np.inf, 0.0)
    edges = [(i, j, unlike) for j in range(4) for i in range(j)]
    return Assignment.of([[0.0, 1.0, 2.0]] * 4, edges)


def _problem(num_nodes: int, num_choices: int, limit: float | None) -> Assignment:
    """A random problem: a chain of nodes with extra edges and a memory limit.

    Taking choice 0 of every node is always feasible.
    """
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
