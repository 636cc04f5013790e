"""Programs and shardings: plain data, no JAX, no op semantics, no hardware."""

from meshwright.program.ir.parse import parse_program
from meshwright.program.ir.program import (
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
from meshwright.program.ir.sharding import Sharding, whole
from meshwright.program.ir.text import show_op, show_program
from meshwright.program.ir.verify import verify

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
    "parse_program",
    "show_op",
    "show_program",
    "show_type",
    "verify",
    "whole",
]
