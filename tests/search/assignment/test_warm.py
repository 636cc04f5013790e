"""Warming up compiles all that a search's solves run, so that none compiles later."""

import subprocess
import sys

SCRIPT = """
import sys
from numba.core.dispatcher import Dispatcher
from meshwright.errors import AssignmentError
from meshwright.search.assignment import warm
from meshwright.search.assignment.solve import SolveOptions, solve
from meshwright.search.work import WorkMeter

def signatures():
    return {
        f"{value.__module__}.{value.__name__}{signature}"
        for name, module in list(sys.modules.items())
        if name.startswith("meshwright.search.assignment.")
        for value in vars(module).values()
        if isinstance(value, Dispatcher)
        for signature in value.signatures
    }

warm.warm(rounds=1)
warmed = signatures()
for num_nodes, num_choices in ((60, 9), (120, 6)):
    for limit in (None, 0.6 * num_nodes, 0.2 * num_nodes):
        problem = warm._problem(num_nodes, num_choices, limit)
        try:
            options = SolveOptions(rounds=1)
            first = solve(problem, 1.0, options=options, meter=WorkMeter())
            options = SolveOptions(rounds=2, start=tuple(first.choices.tolist()))
            solve(problem, 1.0, options=options, meter=WorkMeter())
        except AssignmentError:
            pass
print(len(warmed), sorted(signatures() - warmed))
"""


def test_no_solve_with_a_limit_on_rounds_compiles_more_than_warming_does():
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    number, later = found.stdout.split(" ", 1)
    assert int(number) > 15
    assert later.strip() == "[]"
