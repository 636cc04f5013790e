"""Offsets of buffers in a memory of given capacity (TelaMalloc, MiniMalloc).

In: buffers with lifetimes and sizes, from `problem/buffer.py` or a CSV of
`problem/table.py`. Out: an `Allocation`: offsets, a proof that none exist, or neither
within the time. Begin reading at `solve.py`, then `portfolio.py`. The folders, of which
the later ones import from those before:

problem     buffers, their files and arrays, an independent check of every answer
canonical   depth-first search in the order of offsets, learned backtracking
skyline     depth-first search that fills tight sections first
guided      search in which CP-SAT tells where the next buffer can lie
"""

from meshwright.features.allocate.allocation import Allocation, AllocationOutcome
from meshwright.features.allocate.problem.buffer import Buffer, live_bytes
from meshwright.features.allocate.problem.table import format_buffers, read_buffers
from meshwright.features.allocate.solve import AllocationProgress, allocate

__all__ = [
    "Allocation",
    "AllocationOutcome",
    "AllocationProgress",
    "Buffer",
    "allocate",
    "format_buffers",
    "live_bytes",
    "read_buffers",
]
