"""Capture: from JAX functions to programs. Begin at `capture.py`, then `convert.py`."""

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
