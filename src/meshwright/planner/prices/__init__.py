"""Predicted seconds ("prices") to compute an op, and to reshard a value.

The planner adds them up to compare partitionings before it simulates any. Seconds of
one collective come from `predict/links/collective.py`; `resharding.py` fits them to
lines over bytes. Begin reading at `compute_times.py`.
"""
