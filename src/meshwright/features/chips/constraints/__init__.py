"""The constraints of a partition over chips: a checker, and a constraint solver.

In: a graph, and weights or an invalid candidate. Out: a valid partition. Begin reading
at `checker.py`, which says what the constraints are, then `repair.py`.
"""
