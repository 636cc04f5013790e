"""Programs and shardings: plain data, no JAX, no op semantics, no hardware."""

from meshwright.ir.program import (
    Atom,
    Literal,
    Op,
    Program,
    Value,
    Wire,
    itemsize_bytes,
    num_bytes,
    show_type,
)
from meshwright.ir.prune import prune
from meshwright.ir.sharding import Sharding, whole

__all__ = [
    "Atom",
    "Literal",
    "Op",
    "Program",
    "Sharding",
    "Value",
    "Wire",
    "itemsize_bytes",
    "num_bytes",
    "prune",
    "show_type",
    "whole",
]
