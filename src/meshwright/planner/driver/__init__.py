"""The order of a search for a plan: price meshes, solve, simulate, keep the best.

A plan says how a program is sharded over a mesh. To price a mesh is to predict the
seconds of all shardings on it; an integer program then chooses among them. In: a
checked request (`request.py`). Out: simulated plans and the best of them. Begin reading
at `search.py`.
"""
