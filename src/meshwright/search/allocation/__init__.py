"""Offsets of buffers in a memory of given capacity (TelaMalloc, MiniMalloc).

In: buffers with lifetimes and sizes, from `buffer.py` or a CSV of `table.py`. Out: an
`Allocation`: offsets, a proof that none exist, or neither within the time. Begin reading
at `solve.py`; `canonical.py` has the search, `sections.py` its arrays, `check.py` an
independent check of every answer.
"""

from meshwright.search.allocation.allocation import Allocation, AllocationOutcome
from meshwright.search.allocation.buffer import Buffer, live_bytes
from meshwright.search.allocation.solve import AllocationProgress, allocate
from meshwright.search.allocation.table import format_buffers, read_buffers

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
