"""Candidate plans: meshes and expert strategies to try, proposals, and the objective.

In: a machine and the priced integer program of a mesh (`planner.solve`).
Out: proposals, which have only a price, and candidates, which have been simulated.
"""
