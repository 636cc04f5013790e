"""Costs of trials: objectives, constraints, fronts and their hypervolume.

In: figures by name, as an evaluation returns them. Out: costs to minimise, by how much
constraints are violated, which trials no other dominates. Begin reading at `goals.py`.
"""
