"""JAX functions -> programs."""

from meshwright.capture.capture import Captured, abstract, capture, positional_names
from meshwright.capture.convert import convert
from meshwright.capture.tag import tag

__all__ = ["Captured", "abstract", "capture", "convert", "positional_names", "tag"]
