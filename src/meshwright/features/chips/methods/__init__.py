"""Methods that find partitions over chips, one per file.

In: a `ChipProblem`, for most also a valid partition. Out: a partition (the chip of each
op). `contiguous.py` is a dynamic program, `exact.py` CP-SAT, `moves.py` annealing,
`policy.py` a trained policy.
"""
