"""HiGHS as a function, and as a program that another process can start and kill.

It solves a linear integer program. The module imports nothing else of this package, so
that it starts within a second.
"""

import pickle
import sys
from typing import Any

import numpy as np
from scipy import optimize


def minimise(parts: tuple[Any, ...], budget_s: float) -> tuple[Any, float]:
    """Solve an integer program; return the values of its variables and a lower bound.

    The values are `None` if no solution was found.
    parts: fields of `proofs.BinaryProgram`, in their order.
    """
    num_choices, costs, allowed, equal, wanted, usage, limits = parts
    bound_rows: Any = optimize.LinearConstraint
    bound_values: Any = optimize.Bounds
    rows = [bound_rows(equal, wanted, wanted)]
    if len(limits):
        rows.append(bound_rows(usage, np.full(len(limits), -np.inf), limits))
    found = optimize.milp(
        costs,
        constraints=rows,
        bounds=bound_values(0, allowed.astype(float)),
        integrality=np.arange(len(costs)) < num_choices,  # pairs may be fractional
        options={"time_limit": budget_s, "mip_rel_gap": 0.0},
    )
    if found.status == 2:
        return None, np.inf
    bound = -np.inf if found.mip_dual_bound is None else float(found.mip_dual_bound)
    return found.x, bound


if __name__ == "__main__":
    pickle.dump(minimise(*pickle.load(sys.stdin.buffer)), sys.stdout.buffer)
