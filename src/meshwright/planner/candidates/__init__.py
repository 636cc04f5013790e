"""Candidate plans: meshes and expert strategies to try, proposals, and the objective.

In: a machine, and for each mesh an integer program with predicted costs
(`planner.solve`). Out: proposals, whose time is only predicted by the integer program,
and candidates, which have been simulated.
"""
