"""Of two choices of equal cost, presolve removes at most one."""

import numpy as np
import pytest

from meshwright.search.assignment import Assignment, solve


@pytest.mark.parametrize("seed", range(40))
def test_ties_and_forbidden_pairs_keep_an_optimum(seed):
    """Few different costs, many forbidden pairs: a planted choice is always allowed."""
    rng = np.random.default_rng(seed)
    widths = rng.integers(2, 5, 14)
    costs = [rng.integers(0, 2, w) * 1e-3 for w in widths]
    planted = [int(rng.integers(w)) for w in widths]
    edges = []
    for i in range(len(widths)):
        for j in rng.choice(len(widths), 3, replace=False):
            if i != j:
                table = rng.choice([0.0, 1e-3, np.inf], (widths[i], widths[j]))
                table[planted[i], planted[j]] = 1e-3 * rng.integers(0, 2)
                edges.append((i, int(j), table))
    problem = Assignment.of(costs, edges)
    found = solve(problem, 600.0)
    assert found.bound - 1e-12 <= found.cost <= problem.cost(planted) + 1e-12
