"""Multi-chip partitioning: each op of a program on one chip of a module, as a pipeline.

In: a `ChipGraph` (ops with seconds, values between them) and a `ChipModule`. Out: a
`ChipPartition`: chips by op, throughput, memory. Begin reading at
`problem/chip_problem.py`, then `solve.py`, which runs all methods.

Reference: Xie et al., A Transferable Approach for Partitioning Machine Learning Models
on Multi-Chip-Modules, MLSys 2022.
"""
