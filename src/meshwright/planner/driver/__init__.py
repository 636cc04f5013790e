"""The order of a search for a plan: price meshes, solve, simulate, keep the best.

A plan says how a program is sharded over a mesh. In: a checked request (`request.py`).
Out: simulated plans and the best of them. Begin reading at `search.py`.
"""
