"""Integer programs with one choice per node, pairwise costs and a memory limit.

Input: an `Assignment`. Output: a `Solution`, with a lower bound on the optimum.
The folders, each of which imports only from those before it:

problem     the problem, its reduced form, memory rows, the IOPDDL file format
incumbent   options and results of a solve, the best solution and bound found so far
presolve    smaller problems: dominated choices removed, nodes merged
eliminate   exact dynamic programming by bucket elimination
bounds      lower bounds by message passing and Lagrangian relaxation
primal      feasible solutions: diving, repair, large neighbourhood search
solvers     HiGHS on the linearised program

Begin reading at `solve.py`, then `phases.py`. The planner builds its integer programs
in `planner/integer_program/builder.py`.
"""

from meshwright.search.assignment.incumbent.solution import (
    Clock,
    Progress,
    Solution,
    SolveOptions,
)
from meshwright.search.assignment.problem.assignment import Assignment
from meshwright.search.assignment.solve import solve

__all__ = ["Assignment", "Clock", "Progress", "Solution", "SolveOptions", "solve"]
