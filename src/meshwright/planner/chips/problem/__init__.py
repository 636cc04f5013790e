"""A partition problem: a graph on the chips of a module, and the load of a partition.

In: a `ChipGraph` and a machine. Out: a `ChipProblem`, which evaluates and repairs
partitions and has a lower bound. Begin reading at `chip_problem.py`.
"""
