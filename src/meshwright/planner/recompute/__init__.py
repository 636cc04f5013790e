"""Rematerialization under a plan: which residuals to save, and which to recompute.

Residuals are values that the forward pass computes and the backward pass reads.
"""
