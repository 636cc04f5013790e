"""Policies for systems: which object a cache evicts, which calls a compiler inlines.

In: a trace of requests (`cache/trace.py`), or C and C++ (`compiler/corpus.py`). Out: the
misses of each policy (`cache/simulate.py`), or decisions (`compiler/tuning/tune.py`).
Begin reading at `command.py`, which is `meshwright policies`.
"""
