"""Propagation and prices over arrays of integers, compiled by Numba.

They make searches possible that visit many thousands of partitioning states.
"""
