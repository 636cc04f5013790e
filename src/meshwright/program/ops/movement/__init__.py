"""Ops that move or copy elements, ops that fix shardings, and Pallas kernels."""
