"""Lowering: from a program and its shardings to a device program with collectives.

Begin reading at `lowering.py`. `scope.py` reads operands in the sharding that an op
needs: `Scope.read` gathers them, once or at each use. `reshard.py` chooses collectives.
`overlap.py` interleaves some with matrix products, as loops over parts.
"""

from meshwright.partitioner.lower.constrained import (
    CONSTRAIN,
    USER_SHARD_MAP,
    constrained_program,
)
from meshwright.partitioner.lower.lowered import (
    Gather,
    Lowered,
    Origin,
    Workaround,
    count_collectives,
    executions,
)
from meshwright.partitioner.lower.lowering import lower
from meshwright.partitioner.lower.overlap import ProductLoop, loop_ops, walk_loops
from meshwright.partitioner.lower.reshard import local_shape, reshard_steps

__all__ = [
    "CONSTRAIN",
    "USER_SHARD_MAP",
    "Gather",
    "Lowered",
    "Origin",
    "ProductLoop",
    "Workaround",
    "constrained_program",
    "count_collectives",
    "executions",
    "local_shape",
    "loop_ops",
    "lower",
    "reshard_steps",
    "walk_loops",
]
