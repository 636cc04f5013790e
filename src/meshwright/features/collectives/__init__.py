"""Reductions over the levels of a machine, written as several collectives (P2).

In: a hierarchy such as 4 nodes of 16 devices, mesh axes, and those to reduce over. Out:
all placements of the axes (`hierarchy.py`), and for each placement the programs that
reduce, with their times (`reductions.py`). An example is an all-reduce over 4 nodes of
8 GPUs: a reduce-scatter in each node, an all-reduce between nodes, and an all-gather in
each node. The language, its semantics and the enumeration are those of P2 (Xie et al.,
"Synthesizing Optimal Parallelism Placement and Reduction Strategies", MLSys 2022).

Begin reading at `instruction.py`; `semantics.py` says what a step does to the chunks
that each device holds, and `synthesis.py` enumerates all programs that reach a goal.
"""
