"""Search guided by a constraint solver, as TelaMalloc's (Maas et al., ASPLOS 2023).

In: the arrays of `problem/sections.py` and a capacity. Out: offsets, or a proof that there
are none. Begin reading at `guided.py`; `candidates.py` chooses the next buffer,
`offset_solver.py` asks CP-SAT for its lowest feasible offset.
"""
