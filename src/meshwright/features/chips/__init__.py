"""Multi-chip partitioning: each op of a program on one chip of a module, as a pipeline.

A multi-chip module has several small chips in a line; data flows from lower to higher
chips only. In: a `ChipGraph` (ops with seconds, values between them) and a
`ChipModule`. Out: a `ChipPartition`: the chip of each op, throughput, memory. Begin
reading at `problem/chip_problem.py`, then `solve.py`, which runs all methods.
Reference: Xie et al., A Transferable Approach for Partitioning Machine Learning Models
on Multi-Chip-Modules, MLSys 2022. In array shapes N is the number of ops, C of chips, V
of values.
"""
