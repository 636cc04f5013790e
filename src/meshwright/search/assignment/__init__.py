"""One choice for every node at least cost, within memory: our integer program."""

from meshwright.search.assignment.problem import Assignment
from meshwright.search.assignment.solve import Aim, Clock, Progress, Solution, solve

__all__ = ["Aim", "Assignment", "Clock", "Progress", "Solution", "solve"]
