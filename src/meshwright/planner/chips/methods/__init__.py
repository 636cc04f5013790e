"""Methods that find partitions, one a file.

In: a `ChipProblem`, for most also a valid partition. Out: a partition [N]. `contiguous.py`
is the dynamic program, `exact.py` CP-SAT, `moves.py` annealing, `policy.py` the trained
policy.
"""
