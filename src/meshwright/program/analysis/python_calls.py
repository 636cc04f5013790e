"""The ops of a program that call Python, which only the process that traced it has."""

from meshwright.program.ir import Op, Program

CALLS = frozenset({"debug_callback", "debug_print", "io_callback", "pure_callback"})
"""Kinds of ops that call Python."""


def python_calls(program: Program) -> list[Op]:
    """The ops of a program that call Python, with those of nested programs."""
    return [op for op in program.walk() if op.kind in CALLS]
