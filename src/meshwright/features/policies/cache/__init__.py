"""Eviction in caches: simulation of many policies on a trace, and a cache to run.

In: a trace of requests (`trace.py`). Out: misses of each policy at each size of the cache
(`simulate.py`). Begin reading at `simulate.py`; `eviction` has one file per kind of policy.
"""
