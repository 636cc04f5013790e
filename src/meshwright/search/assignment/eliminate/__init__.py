"""Bucket elimination: exact optimisation by dynamic programming over a graph."""
