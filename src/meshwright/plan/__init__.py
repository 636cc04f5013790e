"""Plans: the public face of partitioning."""

from meshwright.plan.check import CheckReport, OutputError
from meshwright.plan.partition import Partitioned, partition
from meshwright.plan.plan import Plan

__all__ = ["CheckReport", "OutputError", "Partitioned", "Plan", "partition"]
