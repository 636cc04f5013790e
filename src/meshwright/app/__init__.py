"""The public face: plans, partitioned functions, reports, and `autoplan`.

In: a JAX function, arguments, tactics or a machine. Out: a `Plan` and a function that
runs it. Begin reading at `partition.py`, then `plan.py`.
"""

from meshwright.app.autoplan import autoplan
from meshwright.app.check.check import CheckReport, OutputError
from meshwright.app.partition import Partitioned, partition
from meshwright.app.plan import Plan

__all__ = ["CheckReport", "OutputError", "Partitioned", "Plan", "autoplan", "partition"]
