"""Automatic partitioning: from a step and a number of chips to the best plan."""

from meshwright.autoplan.auto import auto
from meshwright.autoplan.autoplan import autoplan
from meshwright.autoplan.objective import OBJECTIVES

__all__ = ["OBJECTIVES", "auto", "autoplan"]
