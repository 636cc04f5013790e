"""Capture: tracing of JAX functions into programs.

Begin at `capture.py`, then read `convert.py`, which converts a jaxpr.
"""

from meshwright.program.capture.avals import KEY_GENERATORS, aval_of, jax_dtype
from meshwright.program.capture.capture import (
    Captured,
    abstract,
    capture,
    positional_names,
)
from meshwright.program.capture.convert import convert
from meshwright.program.capture.iterations import iterations
from meshwright.program.capture.tag import stage, tag

__all__ = [
    "KEY_GENERATORS",
    "Captured",
    "abstract",
    "aval_of",
    "capture",
    "convert",
    "iterations",
    "jax_dtype",
    "positional_names",
    "stage",
    "tag",
]
