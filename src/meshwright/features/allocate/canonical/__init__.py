"""Depth-first search that places buffers in the order of their offsets (MiniMalloc).

In: the arrays of `problem/sections.py` and a capacity. Out: offsets, or a proof that there
are none. Begin reading at `depth_first.py`; `packing_state.py` has the state and the
bounds, `independent_parts.py` divides a problem, `backtracking_trees.py` tells which
placements are hopeless.
"""
