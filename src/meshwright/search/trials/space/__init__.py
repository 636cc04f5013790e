"""Spaces of candidates, as data: choices, ranges, repetitions, and conditions.

In: parts, nested in one another. Out: candidates as plain dicts, and their coding as
vectors of numbers, which engines change. Begin reading at `parts.py`.
"""
