"""From a few cuts to a sharding of every value."""

from meshwright.propagate.carry import Carrier
from meshwright.propagate.engine import Engine
from meshwright.propagate.graph import Graph, Node
from meshwright.propagate.state import Cause, Conflict, State
from meshwright.propagate.units import split_axes, user_axes, whole_axes

__all__ = [
    "Carrier",
    "Cause",
    "Conflict",
    "Engine",
    "Graph",
    "Node",
    "State",
    "split_axes",
    "user_axes",
    "whole_axes",
]
