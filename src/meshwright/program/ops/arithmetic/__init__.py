"""Ops that compute: elementwise ones, contractions, convolutions, reductions and others."""
