"""Rewrites: each takes a program and returns another that computes the same."""
