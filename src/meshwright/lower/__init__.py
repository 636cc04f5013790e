"""Program + decisions -> device program."""

from meshwright.lower.count import count_collectives, executions
from meshwright.lower.lowering import Gather, Lowered, Origin, lower
from meshwright.lower.reshard import local_shape, reshard_steps

__all__ = [
    "Gather",
    "Lowered",
    "Origin",
    "count_collectives",
    "executions",
    "local_shape",
    "lower",
    "reshard_steps",
]
