"""Presolve: reductions of a problem that keep at least one optimal solution."""
