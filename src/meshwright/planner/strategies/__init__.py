"""The choices of the planner: strategies of ops, for each class of equal ops.

A strategy is one way to partition an op.
"""
