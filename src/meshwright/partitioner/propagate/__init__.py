"""Propagation: from the shardings of a few values to a sharding of every value.

Begin reading at `propagator.py`. `legality.py` gives the reason if an axis cannot shard
a dim, for instance because the dim's size is not a multiple of the axis's.
"""

from meshwright.partitioner.propagate.graph import Graph, Node
from meshwright.partitioner.propagate.legality import why_not
from meshwright.partitioner.propagate.partial_sums import PartialSums
from meshwright.partitioner.propagate.propagator import Propagator
from meshwright.partitioner.propagate.state import Cause, Conflict, State
from meshwright.partitioner.propagate.sub_axes import join_sub_axes, user_axes
from meshwright.partitioner.propagate.sum_routes import SumRoutes

__all__ = [
    "Cause",
    "Conflict",
    "Graph",
    "Node",
    "PartialSums",
    "Propagator",
    "State",
    "SumRoutes",
    "join_sub_axes",
    "user_axes",
    "why_not",
]
