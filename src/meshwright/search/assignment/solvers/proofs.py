"""CP-SAT (OR-tools) and HiGHS (through SciPy) on the linearised problem.

The integer program has one 0-1 variable per choice and one per pair of choices of an
edge. Pair costs are linearised as in Alpa (Zheng et al., OSDI 2022): over all pairs of
an edge that contain a choice, the pair variables sum to the variable of that choice.
"""

import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from meshwright.errors import AssignmentError
from meshwright.search.arrays import Bools, Floats, Ints, owners_of, ranges, starts_of
from meshwright.search.assignment.incumbent.incumbent import Incumbent
from meshwright.search.assignment.problem.assignment import Assignment
from meshwright.search.assignment.problem.memory_rows import MemoryRows
from meshwright.search.assignment.problem.reduced_problem import (
    CostGraph,
    ReducedProblem,
)

_CHILD = Path(__file__).with_name("highs_child.py")
_SPARE_S = 0.7  # kept back, so that the answer arrives before the time is up


class BinaryProgram(NamedTuple):
    """Minimize costs @ x over 0-1 vectors x: equal @ x = wanted, usage @ x <= limits.

    num_choices: number of variables for choices; the variables for pairs follow them
    allowed: whether each variable may be 1
    """

    num_choices: int
    costs: Floats
    allowed: Bools
    equal: sparse.csr_array
    wanted: Floats
    usage: sparse.csr_array
    limits: Floats


def linearise(graph: Assignment | CostGraph, node_costs: Floats) -> BinaryProgram:
    """The integer program of an assignment problem, without its memory constraints."""
    num_choices = int(graph.starts[-1])
    costs = np.concatenate([node_costs, graph.tables])
    allowed = costs < np.inf
    equal = _equalities(graph, len(costs))
    wanted = np.zeros(len(equal.indptr) - 1)
    wanted[: len(graph.starts) - 1] = 1
    return BinaryProgram(
        num_choices,
        np.where(allowed, costs, 0.0),
        allowed,
        equal,
        wanted,
        sparse.csr_array((0, len(costs))),
        np.zeros(0),
    )


def chosen(starts: Ints, values: Floats) -> Ints:
    """The choice of each node, read off the variables of the integer program."""
    best = np.zeros(len(starts) - 1, np.int64)
    owners = owners_of(starts)
    on = np.flatnonzero(values[: starts[-1]] > 0.5)
    best[owners[on]] = on - starts[owners[on]]
    return best


def linearise_reduced(reduced: ReducedProblem, memory: MemoryRows) -> BinaryProgram:
    """The integer program of a reduced problem, with one constraint per memory row."""
    parts = memory.segments
    node = owners_of(parts.starts)
    widths = reduced.widths[node]
    length = np.repeat(parts.ends - parts.rows, widths)
    columns = np.repeat(ranges(reduced.graph.starts[node], widths), length)
    rows = ranges(np.repeat(parts.rows, widths), length)
    entries = np.repeat(parts.excess, length), (rows, columns)
    linear = linearise(reduced.graph, reduced.costs)
    shape = memory.num_rows, len(linear.costs)
    usage = sparse.csr_array(entries, shape=shape)
    return linear._replace(usage=usage, limits=memory.slack)


def _equalities(graph: Assignment | CostGraph, num_variables: int) -> sparse.csr_array:
    """The matrix of the equations of the integer program.

    They say that each node has one choice, and that the pair variables which contain a
    choice sum to the variable of that choice.
    """
    widths = np.diff(graph.starts)
    num_choices = int(graph.starts[-1])
    one, two = graph.ends[:, 0], graph.ends[:, 1]
    edge = owners_of(graph.table_starts)
    within = np.arange(len(graph.tables)) - graph.table_starts[edge]
    row_starts = len(widths) + starts_of(widths[one] + widths[two])
    first = row_starts[edge] + within // widths[two][edge]
    second = row_starts[edge] + widths[one][edge] + within % widths[two][edge]
    node = np.concatenate([one, two])
    sums = widths[node]
    offset = np.concatenate([row_starts[:-1], row_starts[:-1] + widths[one]])
    pairs = num_choices + np.arange(len(graph.tables))
    choices = ranges(graph.starts[node], sums)
    rows = [owners_of(graph.starts), first, second, ranges(offset, sums)]
    columns = [np.arange(num_choices), pairs, pairs, choices]
    signs = [np.ones(num_choices + 2 * len(pairs)), -np.ones(len(choices))]
    return sparse.csr_array(
        (np.concatenate(signs), (np.concatenate(rows), np.concatenate(columns))),
        shape=(int(row_starts[-1]), num_variables),
    )


class CpSatModel:
    """A CP-SAT model of an assignment problem that can be run and stopped.

    CP-SAT takes integers. Other costs are scaled so that the largest is 1e12, and
    rounded; the lower bound is reduced by the largest possible sum of rounding errors.
    """

    def __init__(self, linear: BinaryProgram, seed: int, workers: int) -> None:
        from ortools.sat.python import cp_model

        self.linear = linear
        costs, self.scale = whole_costs(linear)
        self.model, self.variables = _model(linear, costs)
        self.solver = cp_model.CpSolver()
        self.solver.parameters.num_workers = workers
        self.solver.parameters.random_seed = seed

    def hint(self, choices: Ints) -> None:
        """Start the run from a solution.

        Choices: indices of the variables that are 1.
        """
        ones = set(choices.tolist())
        for index in range(self.linear.num_choices):
            self.model.add_hint(self.variables[index], index in ones)

    def stop(self) -> None:
        """End the run; other threads may call it."""
        self.solver.stop_search()

    def run(
        self, budget_s: float, on_found: Callable[[Floats], None]
    ) -> tuple[Floats | None, float]:
        """Solve; return the values of the choice variables, and a lower bound.

        The values are `None` if no solution was found. on_found: called with the values
        of each new solution.
        """
        from ortools.sat.python import cp_model

        if budget_s <= 0:
            return None, -np.inf
        self.solver.parameters.max_time_in_seconds = budget_s
        read = self._read

        class Watch(cp_model.CpSolverSolutionCallback):
            def on_solution_callback(self) -> None:
                on_found(read(self))

        status = self.solver.solve(self.model, Watch())
        if status == cp_model.INFEASIBLE:
            return None, np.inf
        rounding = 0.0 if self.scale == 1 else 0.5 * len(self.linear.wanted)
        bound = (self.solver.best_objective_bound - rounding) / self.scale
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None, bound
        return self._read(self.solver), bound

    def _read(self, solver: Any) -> Floats:
        variables = self.variables[: self.linear.num_choices]
        return np.array([solver.value(v) for v in variables], float)


class CpSatProof:
    """A run of CP-SAT that starts from the best solution and reports each new one.

    On a small reduced problem it often proves an optimum that Lagrangian bounds do not
    reach.
    """

    def __init__(self, incumbent: Incumbent, seed: int) -> None:
        self.incumbent = incumbent
        self.search = CpSatModel(
            linearise_reduced(incumbent.reduced, incumbent.memory), seed, 1
        )
        incumbent.stops.append(self.search.stop)
        if incumbent.choices is not None:
            self.search.hint(incumbent.reduced.graph.starts[:-1] + incumbent.choices)

    def run(self) -> None:
        """Run until the time is up or the optimum is proven."""
        found, bound = self.search.run(self.incumbent.clock.left_s, self._offer)
        if found is not None:
            self._offer(found)
        self.incumbent.raise_bound(bound)
        if bound == float("inf"):
            self.incumbent.stopped = True

    def _offer(self, values: Floats) -> None:
        self.incumbent.offer(chosen(self.incumbent.reduced.graph.starts, values))
        if self.incumbent.is_over:
            self.search.stop()


class HighsProof:
    """A run of HiGHS in its own process.

    It offers its result to the incumbent at the end.
    """

    def __init__(self, incumbent: Incumbent) -> None:
        self.incumbent = incumbent
        # A plain tuple, which a process can read without this package.
        self.parts = tuple(linearise_reduced(incumbent.reduced, incumbent.memory))
        self.child: subprocess.Popen[bytes] | None = None
        incumbent.stops.append(self._stop)

    def run(self) -> None:
        """Run until the optimum is proven or time is nearly up, and offer the result."""
        left_s = self.incumbent.clock.left_s - _SPARE_S
        if left_s <= 1:
            return
        self.child = subprocess.Popen(
            [sys.executable, "-P", str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches only the parent
        )
        answer, _ = self.child.communicate(pickle.dumps((self.parts, left_s)))
        if not answer or self.child.returncode != 0:
            return
        values, bound = pickle.loads(answer)
        if values is not None:
            self.incumbent.offer(chosen(self.incumbent.reduced.graph.starts, values))
        slack = 1e-6 * abs(bound)  # tolerance of HiGHS
        self.incumbent.raise_bound(bound - slack)

    def _stop(self) -> None:
        if self.child is not None and self.child.poll() is None:
            self.child.kill()


def whole_costs(linear: BinaryProgram) -> tuple[Floats, float]:
    """The costs as integers, and the factor by which they were multiplied for this."""
    if np.all(linear.costs == np.round(linear.costs)):
        return linear.costs, 1.0
    scale = 1e12 / max(np.abs(linear.costs).max(), 1e-300)
    return np.round(linear.costs * scale), scale


def _model(linear: BinaryProgram, costs: Floats) -> tuple[Any, list[Any]]:
    from ortools.sat.python import cp_model

    if np.any(linear.usage.data != np.round(linear.usage.data)):
        raise AssignmentError("CP-SAT takes whole usages only: scale and round them")
    model = cp_model.CpModel()
    variables = [model.new_bool_var("") for _ in costs]
    for index in np.flatnonzero(~linear.allowed):
        model.add(variables[index] == 0)
    for matrix, limits, is_equal in (
        (linear.equal, linear.wanted, True),
        (linear.usage, linear.limits, False),
    ):
        ends = matrix.indptr
        for row in range(len(limits)):
            part = slice(ends[row], ends[row + 1])
            left = cp_model.LinearExpr.weighted_sum(
                [variables[c] for c in matrix.indices[part]],
                [int(v) for v in matrix.data[part]],
            )
            right = math.floor(limits[row])
            model.add(left == right if is_equal else left <= right)
    paid = np.flatnonzero(costs)
    model.minimize(
        cp_model.LinearExpr.weighted_sum(
            [variables[c] for c in paid], [int(c) for c in costs[paid]]
        )
    )
    return model, variables
