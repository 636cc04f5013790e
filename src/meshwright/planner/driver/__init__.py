"""The order of a search: price meshes, solve, simulate, and keep the best plan.

In: a checked request (`request.py`). Out: simulated candidates and the best of them.
Begin reading at `search.py`.
"""
