"""The constraints of a partition: an independent checker, and the constraint solver.

In: a graph and weights or a candidate. Out: a valid partition. Begin reading at
`checker.py`, which says what the constraints are, then `repair.py`.
"""
