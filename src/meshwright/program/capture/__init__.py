"""Capture: tracing of JAX functions into programs.

Begin at `capture.py`, then read `convert.py`, which converts a jaxpr.
"""

from meshwright.program.capture.capture import (
    Captured,
    abstract,
    capture,
    positional_names,
)
from meshwright.program.capture.convert import convert
from meshwright.program.capture.stage import stage
from meshwright.program.capture.tag import tag

__all__ = [
    "Captured",
    "abstract",
    "capture",
    "convert",
    "positional_names",
    "stage",
    "tag",
]
