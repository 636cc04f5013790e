"""Prices of the planner: seconds to compute an op, and to reshard a value.

Seconds of one collective come from `predict/links/collective.py`; `resharding.py` fits
them to lines over bytes. Begin reading at `compute_times.py`.
"""
