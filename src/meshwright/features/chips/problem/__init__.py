"""The problem of placing the ops of a graph on the chips of a multi-chip module.

In: a `ChipGraph` and a machine. Out: a `ChipProblem`. It computes the load (seconds and
bytes) that a placement puts on each chip, repairs placements that break a constraint, and
gives a lower bound of the time. Begin reading at `chip_problem.py`.
"""
