"""Programs and shardings as plain data, without JAX, op semantics or hardware."""

from meshwright.program.ir.parse import parse_program
from meshwright.program.ir.program import Op, Program, show_op, show_program
from meshwright.program.ir.sharding import Sharding, whole
from meshwright.program.ir.values import (
    Atom,
    Literal,
    Value,
    Wire,
    itemsize_bytes,
    num_bytes,
    show_type,
)
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
