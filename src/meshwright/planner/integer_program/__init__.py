"""The integer program of one mesh: its variables, their choices, and costs.

In: the strategies of each op and their prices. Out: an `IntegerProgram`, which
`planner/solve` solves. Begin reading at `builder.py`, which builds it.
"""
