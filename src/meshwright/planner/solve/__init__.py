"""The integer program of one mesh: built from prices, solved within a memory limit.

In: a captured program, a mesh and a machine. Out: one choice of strategy per group of
ops, with its predicted step time, its peak memory and a lower bound of the step time.
Begin reading at `space.py`, which prices a program, then `memory_limit.py`.
"""
