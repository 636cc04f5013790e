"""Programs and shardings as plain data, without JAX, op semantics or hardware."""

from meshwright.program.ir.program import (
    Op,
    Program,
    ProgramWriter,
    show_program,
)
from meshwright.program.ir.sharding import Sharding, whole
from meshwright.program.ir.values import (
    Atom,
    Literal,
    Value,
    Wire,
    is_small_integer,
    itemsize_bytes,
    num_bytes,
    show_type,
)

__all__ = [
    "Atom",
    "Literal",
    "Op",
    "Program",
    "ProgramWriter",
    "Sharding",
    "Value",
    "Wire",
    "is_small_integer",
    "itemsize_bytes",
    "num_bytes",
    "show_program",
    "show_type",
    "whole",
]
