"""Policies that are learned for systems: which object a cache evicts.

In: a trace of requests (`cache/trace.py`). Out: the misses of each policy
(`cache/simulate.py`). Begin reading at `command.py`, which is `meshwright policies`.
"""
