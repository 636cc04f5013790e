"""Programs and shardings: plain data, no JAX, no op semantics, no hardware."""

from meshwright.ir.merge import merge
from meshwright.ir.parse import parse_program
from meshwright.ir.program import (
    LOOPS,
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
from meshwright.ir.text import show_op, show_program
from meshwright.ir.verify import verify

__all__ = [
    "LOOPS",
    "Atom",
    "Literal",
    "Op",
    "Program",
    "Sharding",
    "Value",
    "Wire",
    "itemsize_bytes",
    "merge",
    "num_bytes",
    "parse_program",
    "prune",
    "show_op",
    "show_program",
    "show_type",
    "verify",
    "whole",
]
