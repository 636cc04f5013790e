"""Lowering: from a program and its shardings to a device program with collectives.

Begin reading at `lowering.py`. `scope.py` reads operands in the sharding that an op
needs: `Scope.read` gathers them, once or at each use. `reshard.py` chooses collectives.
`overlap.py` interleaves some with matrix products, as loops over parts.
"""

from meshwright.partitioner.lower.constrained import constrained_program
from meshwright.partitioner.lower.lowered import (
    Gather,
    Lowered,
    Origin,
    Workaround,
    count_collectives,
    executions,
)
from meshwright.partitioner.lower.lowering import lower
from meshwright.partitioner.lower.overlap import ProductLoop, walk_loops

__all__ = [
    "Gather",
    "Lowered",
    "Origin",
    "ProductLoop",
    "Workaround",
    "constrained_program",
    "count_collectives",
    "executions",
    "lower",
    "walk_loops",
]
