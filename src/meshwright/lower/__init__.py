"""Program + decisions -> device program."""

from meshwright.lower.count import count_collectives, executions
from meshwright.lower.lowered import Gather, Lowered, Origin
from meshwright.lower.lowering import lower
from meshwright.lower.reshard import local_shape, reshard_steps
from meshwright.lower.verify import verify_lowered

__all__ = [
    "Gather",
    "Lowered",
    "Origin",
    "count_collectives",
    "executions",
    "local_shape",
    "lower",
    "reshard_steps",
    "verify_lowered",
]
