"""Rewrites: each takes a program and returns another that computes the same."""

from meshwright.program.rewrite.common_subexpressions import (
    eliminate_common_subexpressions,
)
from meshwright.program.rewrite.dead_code import eliminate_dead_code
from meshwright.program.rewrite.flattened_products import unflatten_products

__all__ = [
    "eliminate_common_subexpressions",
    "eliminate_dead_code",
    "unflatten_products",
]
