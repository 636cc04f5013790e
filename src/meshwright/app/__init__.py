"""The public face: partitioned functions, plans, reports, checks, and `autoplan`.

In: a JAX function, arguments, tactics or a machine. Out: a `Plan`, and a function that
runs it. Begin reading at `partition.py`, then `plan.py`; `autoplan.py` is not imported
here, since the search brings SciPy and numba. The folders:

    record   the data of a plan, which the other folders read
    explain  the effect of each tactic, and the reason for each collective
    report   an HTML page and trace events about a simulated step
    confirm  predicted figures compared with those of the real compiler
    check    outputs of the partitioned program compared with those of the original
    interop  plans for plain `jax.jit`, Flax and MaxText
    output   numbers with units, files and progress
"""

from meshwright.app.check.check import CheckReport, OutputError
from meshwright.app.explain.diff import PlanDiff, diff
from meshwright.app.interop.logical_axes import from_logical_axes
from meshwright.app.partition import Partitioned, partition
from meshwright.app.plan import Plan

__all__ = [
    "CheckReport",
    "OutputError",
    "Partitioned",
    "Plan",
    "PlanDiff",
    "diff",
    "from_logical_axes",
    "partition",
]
