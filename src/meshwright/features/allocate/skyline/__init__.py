"""Depth-first search that fills the tightest section of time first.

In: the arrays of `problem/sections.py` and a capacity. Out: offsets, or a proof that there
are none. Begin reading at `skyline.py`; `skyline_state.py` has the state.
"""
