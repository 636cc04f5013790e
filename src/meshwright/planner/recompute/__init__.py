"""Rematerialization under a plan: which residuals to save, and which to recompute."""
