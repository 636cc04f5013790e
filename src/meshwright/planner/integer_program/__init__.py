"""The integer program of one mesh: its variables, their choices, and costs.

A choice is one way to partition an op, or one sharding of a value. In: these choices
with predicted seconds and bytes. Out: an `IntegerProgram`, which `planner/solve`
solves. Begin reading at `builder.py`, which builds it.
"""
