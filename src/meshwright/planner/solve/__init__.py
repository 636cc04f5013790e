"""The integer program of a mesh, priced in `space.py`, solved in `memory_limit.py`."""
