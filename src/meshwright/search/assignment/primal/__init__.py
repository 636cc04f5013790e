"""Primal heuristics: feasible solutions of low cost."""
